"""Decisions in generators, input and output in two drivers.

A *flow* is a generator that yields operations and returns a value. It decides; it
never does I/O itself, so one definition serves sync and async, streamed or not::

    def greet(store, cid):
        history = yield from io(store.get, store.aget, cid)
        return len(history)

    run(greet(store, "a"))          # sync
    await arun(greet(store, "a"))   # async

Rules. Operations are yielded only through the helpers `io`, `stream`, `emit` and
`many`, never from a ``finally`` block. When the caller leaves (closes the iteration,
or its task is cancelled) the driver throws `Interrupted` into the flow at the operation
that was waiting; the flow may save with a few more operations and should then let the
error pass. Those last operations run to their end: under asyncio in a shielded task.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Generator,
    Sequence,
)
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from convmem.chat import AsyncSource, Completion, Event, Source, SyncSource
from convmem.exceptions import Interrupted

T = TypeVar("T")
Flow: TypeAlias = Generator["Operation", Any, T]


@dataclass(frozen=True, slots=True)
class Io:
    call: Callable[..., Any]
    acall: Callable[..., Awaitable[Any]]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stream:
    open: Callable[[], SyncSource]
    aopen: Callable[[], Awaitable[AsyncSource]]
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Emit:
    event: Event


@dataclass(frozen=True, slots=True)
class Many:
    flows: Sequence[Flow[Any]]


Operation: TypeAlias = Io | Stream | Emit | Many


def io(
    call: Callable[..., T],
    acall: Callable[..., Awaitable[T]],
    *args: Any,
    **kwargs: Any,
) -> Flow[T]:
    """Call ``call`` or await ``acall`` with the same arguments; return the result."""
    result: T = yield Io(call, acall, args, kwargs)
    return result


def stream(
    open: Callable[[], SyncSource],  # noqa: A002 - the operation's own name
    aopen: Callable[[], Awaitable[AsyncSource]],
    *,
    quiet: bool = False,
) -> Flow[Completion]:
    """Open a model's stream, hand its deltas to the caller as they come (unless
    ``quiet``), close it and return the assembled completion."""
    completion: Completion = yield Stream(open, aopen, quiet)
    return completion


def emit(event: Event) -> Flow[None]:
    """Hand one event to the caller, if the caller is iterating."""
    yield Emit(event)


def many(flows: Sequence[Flow[T]]) -> Flow[list[T]]:
    """Run flows side by side (async) or in order (sync: a thread each would open a
    database connection each); return their results in order. The first error wins
    and the others are interrupted."""
    results: list[T] = yield Many(flows)
    return results


# --- sync driver ---


def run(flow: Flow[T]) -> T:
    """Drive ``flow`` to its end, dropping its events; return its value."""
    return _drain(iterate(flow))


def iterate(flow: Flow[T]) -> Generator[Event, None, T]:
    """Drive ``flow``, yielding its events; the generator's return value is the flow's.

    Closing the generator interrupts the flow.
    """
    resume: Callable[[], Operation] = flow.__next__
    while True:
        try:
            operation = resume()
        except StopIteration as stop:
            result: T = stop.value
            return result
        step = _Step()
        try:
            value = yield from _perform(operation, step)
        except _LEAVING:
            _finish(flow, Interrupted(partial=step.partial))
            raise
        except Exception as error:  # noqa: BLE001 - the flow decides what it means
            resume = partial(flow.throw, error)
        else:
            resume = partial(flow.send, value)


def _perform(operation: Operation, step: _Step) -> Generator[Event, None, Any]:
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
        return source.completion()
    except _LEAVING:
        step.keep(source)
        raise
    finally:
        source.close()


def _in_order(flows: Sequence[Flow[T]]) -> Generator[Event, None, list[T]]:
    results: list[T] = []
    try:
        for flow in flows:
            results.append((yield from iterate(flow)))
    finally:
        for flow in flows[len(results) :]:
            flow.close()
    return results


def _finish(flow: Flow[Any], reason: Interrupted) -> None:
    """Throw ``reason`` into the flow and perform what it still asks for, silently."""
    resume: Callable[[], Operation] = partial(flow.throw, reason)
    with contextlib.suppress(StopIteration, Interrupted):
        while True:
            operation = resume()
            try:
                value = _drain(_perform(operation, _Step()))
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


# --- async driver ---


async def arun(flow: Flow[T]) -> T:
    """Drive ``flow`` to its end in the running event loop; return its value."""
    iteration = AsyncIteration(flow)
    async for _event in iteration:
        pass
    return iteration.result


class AsyncIteration(Generic[T]):
    """``async for`` over a flow's events; afterwards ``result`` is the flow's value.

    To leave early call ``aclose()`` or use ``async with``: it interrupts the flow and
    waits until the flow has saved what it wanted to. Cancelling the reading task does
    the same.
    """

    def __init__(self, flow: Flow[T]) -> None:
        self._flow = flow
        self._end = _Step()
        self._events = _aevents(flow, self._end)

    def __aiter__(self) -> AsyncIteration[T]:
        return self

    async def __anext__(self) -> Event:
        return await self._events.__anext__()

    @property
    def result(self) -> T:
        """The flow's value. Raises `RuntimeError` before the iteration has ended."""
        if not self._end.done:
            raise RuntimeError("The flow has not ended; iterate to the end first.")
        result: T = self._end.value
        return result

    async def aclose(self) -> None:
        """Interrupt the flow if it is still going, and wait for its last saves."""
        await self._events.aclose()
        self._flow.close()

    async def __aenter__(self) -> AsyncIteration[T]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def aiterate(flow: Flow[T]) -> AsyncIteration[T]:
    """Return an asynchronous iteration over the flow's events."""
    return AsyncIteration(flow)


async def _aevents(flow: Flow[Any], end: _Step) -> AsyncGenerator[Event, None]:
    resume: Callable[[], Operation] = flow.__next__
    while True:
        try:
            operation = resume()
        except StopIteration as stop:
            end.set(stop.value)
            return
        step = _Step()
        try:
            if isinstance(operation, Io):
                step.set(await operation.acall(*operation.args, **operation.kwargs))
            else:
                async with contextlib.aclosing(_aperform(operation, step)) as events:
                    async for event in events:
                        yield event
        except _LEAVING:
            await _shielded(_afinish(flow, Interrupted(partial=step.partial)))
            raise
        except Exception as error:  # noqa: BLE001 - the flow decides what it means
            resume = partial(flow.throw, error)
        else:
            resume = partial(flow.send, step.value)


async def _aperform(operation: Operation, step: _Step) -> AsyncGenerator[Event, None]:
    if isinstance(operation, Io):
        step.set(await operation.acall(*operation.args, **operation.kwargs))
    elif isinstance(operation, Emit):
        yield operation.event
    elif isinstance(operation, Many):
        async with contextlib.aclosing(_side_by_side(operation, step)) as events:
            async for event in events:
                yield event
    else:
        source = await operation.aopen()
        try:
            async for event in source:
                if not operation.quiet:
                    yield event
            step.set(source.completion())
        except _LEAVING:
            step.keep(source)
            raise
        finally:
            await _shielded(source.aclose())


async def _side_by_side(operation: Many, step: _Step) -> AsyncGenerator[Event, None]:
    queue: asyncio.Queue[Event | None] = asyncio.Queue()
    tasks = [asyncio.create_task(_queued(flow, queue)) for flow in operation.flows]
    try:
        going = len(tasks)
        while going:
            event = await queue.get()
            if event is not None:
                yield event
                continue
            going -= 1
            for task in tasks:
                if task.done():
                    task.result()  # the first error ends them all
        step.set([task.result() for task in tasks])
    finally:
        for task in tasks:
            task.cancel()
        await _shielded(asyncio.gather(*tasks, return_exceptions=True))


async def _queued(flow: Flow[T], queue: asyncio.Queue[Event | None]) -> T:
    iteration = AsyncIteration(flow)
    try:
        async for event in iteration:
            queue.put_nowait(event)
        return iteration.result
    finally:
        # Called back once this task is done, so that the reader sees how it ended.
        asyncio.get_running_loop().call_soon(queue.put_nowait, None)


async def _afinish(flow: Flow[Any], reason: Interrupted) -> None:
    resume: Callable[[], Operation] = partial(flow.throw, reason)
    with contextlib.suppress(StopIteration, Interrupted):
        while True:
            operation = resume()
            step = _Step()
            try:
                async for _event in _aperform(operation, step):
                    pass
            except Exception as error:  # noqa: BLE001 - the flow decides
                resume = partial(flow.throw, error)
            else:
                resume = partial(flow.send, step.value)


async def _shielded(work: Awaitable[Any]) -> None:
    """Wait for ``work`` to end; a cancellation that arrives meanwhile comes after."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError


# --- shared ---

_LEAVING = (GeneratorExit, asyncio.CancelledError, KeyboardInterrupt, SystemExit)


@dataclass(slots=True)
class _Step:
    """How one operation ended: its value, or what had come when the caller left."""

    value: Any = None
    done: bool = False
    partial: Completion | None = None

    def set(self, value: Any) -> None:
        self.value, self.done = value, True

    def keep(self, source: Source) -> None:
        with contextlib.suppress(Exception):
            self.partial = source.completion()
