"""The driver of flows for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Generic, Self, TypeVar

from convmem.chat import AsyncSource, Event
from convmem.exceptions import Interrupted
from convmem.kernel.operations import Emit, Flow, Io, Many, Operation, Stream
from convmem.kernel.steps import Step, log_close_error, log_last_error

T = TypeVar("T")


async def arun(flow: Flow[T]) -> T:
    """Drive ``flow`` to its end in the running event loop; return its value."""
    resume: Callable[[], Operation] = flow.__next__
    while True:
        try:
            operation = resume()
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            del resume  # it may hold an error, and so this frame
        step = Step()
        try:
            await _silently(operation, step)
        except Exception as error:  # noqa: BLE001 - the flow decides what it means
            resume = partial(flow.throw, error)
        except BaseException:
            await _shielded(_finish(flow, Interrupted(partial=step.partial)))
            raise
        else:
            resume = partial(flow.send, step.value)


def aiterate(flow: Flow[T]) -> AsyncIteration[T]:
    """Return an asynchronous iteration over the flow's events."""
    return AsyncIteration(flow)


class AsyncIteration(Generic[T]):
    """``async for`` over a flow's events; afterwards ``result`` is the flow's value.

    To leave early call ``aclose()`` or use ``async with``: it interrupts the flow and
    waits until the flow has saved what it wanted to. Cancelling the reading task does
    the same. An iteration that is merely dropped is closed later by its event loop.
    """

    def __init__(self, flow: Flow[T]) -> None:
        self._flow = flow
        self._end = Step()
        self._events = _events(flow, self._end)

    def __aiter__(self) -> Self:
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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def _events(flow: Flow[Any], end: Step) -> AsyncGenerator[Event, None]:
    resume: Callable[[], Operation] = flow.__next__
    while True:
        try:
            operation = resume()
        except StopIteration as stop:
            end.set(stop.value)
            return
        finally:
            del resume  # it may hold an error, and so this frame
        step = Step()
        try:
            if isinstance(operation, Io):
                await _silently(operation, step)
            else:
                async with contextlib.aclosing(_perform(operation, step)) as events:
                    async for event in events:
                        yield event
        except Exception as error:  # noqa: BLE001 - the flow decides what it means
            resume = partial(flow.throw, error)
        except BaseException:
            await _shielded(_finish(flow, Interrupted(partial=step.partial)))
            raise
        else:
            resume = partial(flow.send, step.value)


async def _perform(operation: Operation, step: Step) -> AsyncGenerator[Event, None]:
    if isinstance(operation, Emit):
        yield operation.event
    elif isinstance(operation, Many):
        async with contextlib.aclosing(_side_by_side(operation, step)) as events:
            async for event in events:
                yield event
    elif isinstance(operation, Stream) and not operation.quiet:
        async with _opened(operation, step) as source:
            async for event in source:
                yield event
    else:
        await _silently(operation, step)


async def _silently(operation: Operation, step: Step) -> None:
    """Perform an operation for a caller who reads no events. It makes no asynchronous
    generator, so that it also works while the event loop shuts down."""
    if isinstance(operation, Io):
        step.set(await operation.acall(*operation.args, **operation.kwargs))
    elif isinstance(operation, Stream):
        async with _opened(operation, step) as source:
            async for _event in source:
                pass
    elif isinstance(operation, Many):
        tasks = [asyncio.create_task(arun(flow)) for flow in operation.flows]
        try:
            step.set(list(await asyncio.gather(*tasks)))
        finally:
            await _ended(tasks, operation)


class _opened:  # noqa: N801 - reads as a function
    """A stream that is closed at the end; what came of it is in ``step``."""

    def __init__(self, operation: Stream, step: Step) -> None:
        self._operation = operation
        self._step = step

    async def __aenter__(self) -> AsyncSource:
        self._source = await self._operation.aopen()
        return self._source

    async def __aexit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        try:
            if error is None:
                completion = self._source.completion()
                self._step.set(completion)
                self._step.partial = completion  # closing may be cancelled
            elif not isinstance(error, Exception):
                self._step.keep(self._source)
        finally:
            await _shielded(_close(self._source))


async def _side_by_side(operation: Many, step: Step) -> AsyncGenerator[Event, None]:
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
        await _ended(tasks, operation)


async def _ended(tasks: Sequence[asyncio.Task[Any]], operation: Many) -> None:
    """Cancel what still runs and wait until all have saved what they wanted to."""
    for task in tasks:
        task.cancel()
    await _shielded(asyncio.gather(*tasks, return_exceptions=True))
    for flow in operation.flows:
        flow.close()


async def _queued(flow: Flow[T], queue: asyncio.Queue[Event | None]) -> T:
    iteration = AsyncIteration(flow)
    try:
        async for event in iteration:
            queue.put_nowait(event)
        return iteration.result
    finally:
        # Called back once this task is done, so that the reader sees how it ended.
        asyncio.get_running_loop().call_soon(queue.put_nowait, None)


async def _close(source: AsyncSource) -> None:
    try:
        await source.aclose()
    except Exception as error:  # noqa: BLE001 - the answer, or its own error, counts
        log_close_error(error)


async def _finish(flow: Flow[Any], reason: Interrupted) -> None:
    """Throw ``reason`` into the flow and perform what it still asks for, silently."""
    resume: Callable[[], Operation] = partial(flow.throw, reason)
    while True:
        try:
            operation = resume()
        except (StopIteration, Interrupted):
            return
        except Exception as error:  # noqa: BLE001 - the caller has left
            return log_last_error(error)
        step = Step()
        try:
            await _silently(operation, step)
        except Exception as error:  # noqa: BLE001 - the flow decides
            resume = partial(flow.throw, error)
        else:
            resume = partial(flow.send, step.value)


async def _shielded(work: Awaitable[Any]) -> None:
    """Wait for ``work`` to end; a cancellation that arrives meanwhile comes after."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()
