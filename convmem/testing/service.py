"""A chat service that answers from a script: no network, no key, no model.

::

    service = FakeService(["Hello!", Message.assistant(tool_calls=(call,)), "Done."])
    kernel = Kernel(service)
    ...
    assert service.requests[0].messages[-1].text == "Hi"
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from convmem.chat import ChatRequest, Completion, Delta
from convmem.dialects.assembly import Assembly, deltas_of
from convmem.exceptions import ProviderError
from convmem.messages import Message


@dataclass(frozen=True)
class BrokenReply:
    """A reply that breaks off: ``message`` comes, then ``error`` is raised.

    Streamed, its deltas are yielded first; ``error.partial`` is set for a
    `ProviderError`. Not streamed, the error is raised at once.
    """

    message: Message | str
    error: BaseException


Reply: TypeAlias = str | Message | Completion | BaseException | BrokenReply
Script: TypeAlias = Reply | Callable[[ChatRequest], Reply]


class FakeService:
    """A `ChatService` that gives ``replies`` in order, one a call.

    A reply is a text, a `Message`, a `Completion`, an exception to raise, a
    `BrokenReply`, or a function of the request that returns one of these.
    ``requests`` records every request; ``closed`` counts streams that were closed.
    ``chunk`` is the length of a text delta in characters (0: whole), ``delay`` the
    wait in seconds before each delta and before each reply. With ``repeat`` the last
    reply is given again and again; otherwise a call too many is an `AssertionError`.
    """

    def __init__(
        self,
        replies: Iterable[Script] = (),
        *,
        chunk: int = 4,
        delay: float = 0.0,
        repeat: bool = False,
        model: str = "fake",
    ) -> None:
        self.replies: list[Script] = list(replies)
        self.requests: list[ChatRequest] = []
        self.chunk = chunk
        self.delay = delay
        self.repeat = repeat
        self.model = model
        self.closed = 0

    def complete(self, request: ChatRequest) -> Completion:
        time.sleep(self.delay)
        return self._answer(request)

    async def acomplete(self, request: ChatRequest) -> Completion:
        await asyncio.sleep(self.delay)
        return self._answer(request)

    def stream(self, request: ChatRequest) -> FakeSource:
        return self._source(request)

    async def astream(self, request: ChatRequest) -> FakeSource:
        await asyncio.sleep(0)
        return self._source(request)

    def _source(self, request: ChatRequest) -> FakeSource:
        reply = self._next(request)
        if isinstance(reply, BaseException):
            raise reply
        return FakeSource(self, reply)

    def _answer(self, request: ChatRequest) -> Completion:
        reply = self._next(request)
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, BrokenReply):
            raise reply.error
        return self.completion_of(reply)

    def _next(self, request: ChatRequest) -> Reply:
        number = len(self.requests)
        self.requests.append(request)
        if number >= len(self.replies) and not (self.repeat and self.replies):
            raise AssertionError(
                f"FakeService has {len(self.replies)} replies; this is call "
                f"{number + 1}. Add a reply or pass repeat=True."
            )
        reply = self.replies[min(number, len(self.replies) - 1)]
        if isinstance(reply, BaseException) or not callable(reply):
            return reply
        return reply(request)

    def completion_of(self, reply: str | Message | Completion) -> Completion:
        """Return the completion that ``reply`` stands for."""
        if isinstance(reply, Completion):
            return reply
        message = Message.assistant(reply) if isinstance(reply, str) else reply
        return Completion(
            message=message,
            finish_reason="tool_calls" if message.tool_calls else "stop",
            usage=message.usage,
            model=self.model,
        )


class FakeSource:
    """An open scripted answer; it has both the sync and the async half."""

    def __init__(
        self, service: FakeService, reply: str | Message | Completion | BrokenReply
    ) -> None:
        self._service = service
        self._error: BaseException | None = None
        if isinstance(reply, BrokenReply):
            self._error, reply = reply.error, reply.message
        self._whole = service.completion_of(reply)
        self._assembly = Assembly(model=self._whole.model)
        self._deltas = deltas_of(self._whole.message, size=service.chunk)
        self._ended = False
        self._closed = False

    def completion(self) -> Completion:
        """Return the scripted completion, or what has come of it so far."""
        return self._whole if self._ended else self._assembly.completion()

    def _next(self) -> Delta | None:
        """Return the next delta, None at the end."""
        if self._closed:
            return None
        delta = next(self._deltas, None)
        if delta is not None:
            self._assembly.add(delta)
            return delta
        if self._error is not None:
            if isinstance(self._error, ProviderError):
                self._error.partial = self._assembly.completion()
            raise self._error
        self._ended = True
        return None

    def __iter__(self) -> Iterator[Delta]:
        while True:
            time.sleep(self._service.delay)
            delta = self._next()
            if delta is None:
                return
            yield delta

    async def __aiter__(self) -> AsyncIterator[Delta]:
        while True:
            await asyncio.sleep(self._service.delay)
            delta = self._next()
            if delta is None:
                return
            yield delta

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._service.closed += 1

    async def aclose(self) -> None:
        self.close()
