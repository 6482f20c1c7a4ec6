"""The driver of flows for synchronous callers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Generic, Self, TypeVar

from convmem.chat import Event, SyncSource
from convmem.exceptions import Interrupted
from convmem.kernel.operations import Emit, Flow, Io, Many, Operation
from convmem.kernel.steps import Step, log_close_error, log_last_error

T = TypeVar("T")


def run(flow: Flow[T]) -> T:
    """Drive ``flow`` to its end, dropping its events; return its value."""
    return _drain(_events(flow, Step()))


def iterate(flow: Flow[T]) -> Iteration[T]:
    """Return an iteration over the flow's events."""
    return Iteration(flow)


class Iteration(Generic[T]):
    """An iterator over a flow's events; afterwards ``result`` is the flow's value.

    To leave early call ``close()`` or use ``with``: it interrupts the flow and returns
    when the flow has saved what it wanted to.
    """

    def __init__(self, flow: Flow[T]) -> None:
        self._flow = flow
        self._end = Step()
        self._events = _events(flow, self._end)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        return next(self._events)

    @property
    def result(self) -> T:
        """The flow's value. Raises `RuntimeError` before the iteration has ended."""
        if not self._end.done:
            raise RuntimeError("The flow has not ended; iterate to the end first.")
        result: T = self._end.value
        return result

    def close(self) -> None:
        """Interrupt the flow if it is still going."""
        self._events.close()
        self._flow.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _events(flow: Flow[T], end: Step) -> Generator[Event, None, T]:
    """Drive ``flow``, yielding its events; return its value and leave it in ``end``."""
    resume: Callable[[], Operation] = flow.__next__
    while True:
        try:
            operation = resume()
        except StopIteration as stop:
            end.set(stop.value)
            result: T = stop.value
            return result
        finally:
            del resume  # it may hold an error, and so this frame
        step = Step()
        try:
            value = yield from _perform(operation, step)
        except Exception as error:  # noqa: BLE001 - the flow decides what it means
            resume = partial(flow.throw, error)
        except BaseException:
            _finish(flow, Interrupted(partial=step.partial))
            raise
        else:
            resume = partial(flow.send, value)


def _perform(operation: Operation, step: Step) -> Generator[Event, None, Any]:
    if isinstance(operation, Io):
        return operation.call(*operation.args, **operation.kwargs)
    if isinstance(operation, Emit):
        yield operation.event
        return None
    if isinstance(operation, Many):
        return (yield from _in_order(operation.flows))
    source = operation.open()
    try:
        for event in source:
            if not operation.quiet:
                yield event
        step.partial = source.completion()  # closing may be interrupted
        return step.partial
    except Exception:
        raise
    except BaseException:
        step.keep(source)
        raise
    finally:
        _close(source)


def _in_order(flows: Sequence[Flow[T]]) -> Generator[Event, None, list[T]]:
    results: list[T] = []
    try:
        for flow in flows:
            results.append((yield from _events(flow, Step())))
    finally:
        for flow in flows[len(results) :]:
            flow.close()
    return results


def _close(source: SyncSource) -> None:
    try:
        source.close()
    except Exception as error:  # noqa: BLE001 - the answer, or its own error, counts
        log_close_error(error)


def _finish(flow: Flow[Any], reason: Interrupted) -> None:
    """Throw ``reason`` into the flow and perform what it still asks for, silently."""
    resume: Callable[[], Operation] = partial(flow.throw, reason)
    while True:
        try:
            operation = resume()
        except (StopIteration, Interrupted):
            return
        except Exception as error:  # noqa: BLE001 - the caller has left
            return log_last_error(error)
        try:
            value = _drain(_perform(operation, Step()))
        except Exception as error:  # noqa: BLE001 - the flow decides
            resume = partial(flow.throw, error)
        else:
            resume = partial(flow.send, value)


def _drain(events: Generator[Event, None, T]) -> T:
    while True:
        try:
            next(events)
        except StopIteration as stop:
            result: T = stop.value
            return result
