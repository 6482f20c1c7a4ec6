"""What goes to a model and what comes back, as frozen values."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal, Protocol, TypeAlias

from convmem.messages import Message, ToolCall, Usage, Value

FinishReason: TypeAlias = Literal[
    "stop", "length", "tool_calls", "content_filter", "interrupted", "unknown"
]
ToolChoice: TypeAlias = Literal["auto", "none", "required"] | dict[str, Any]


class ToolSpec(Value, frozen=True):
    """A tool as the model sees it; ``parameters`` is a JSON Schema of type object."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    strict: bool | None = None


class ChatRequest(Value, frozen=True):
    """One call of a model. ``messages`` is everything that the model will see.

    ``options`` are further parameters by their OpenAI wire names. ``timeout`` is the
    total deadline in seconds (None: the client's own). ``request_id`` names the call
    in logs and in the provider's idempotency header.
    """

    messages: tuple[Message, ...]
    model: str = ""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    response_format: dict[str, Any] | None = None
    options: dict[str, Any] = {}
    timeout: float | None = None
    request_id: str | None = None


class Completion(Value, frozen=True):
    """A model's whole answer. ``raw_finish_reason`` is the provider's own word."""

    message: Message
    finish_reason: FinishReason = "stop"
    raw_finish_reason: str | None = None
    usage: Usage | None = None
    model: str = ""
    id: str = ""
    extra: dict[str, Any] = {}

    @property
    def text(self) -> str:
        return self.message.text

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return self.message.tool_calls


class TextDelta(Value, frozen=True, tag_field="type", tag="text"):
    """A piece of the answer's text."""

    text: str


class ReasoningDelta(Value, frozen=True, tag_field="type", tag="reasoning"):
    """A piece of the model's reasoning text."""

    text: str


class RefusalDelta(Value, frozen=True, tag_field="type", tag="refusal"):
    """A piece of a refusal."""

    text: str


class ToolCallDelta(Value, frozen=True, tag_field="type", tag="tool_call"):
    """A piece of the tool call at ``index`` in the answer; ``id`` and ``name`` come
    once, in its first piece."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class ToolResultDelta(Value, frozen=True, tag_field="type", tag="tool_result"):
    """A tool has run: the message that goes back to the model."""

    message: Message


class CompletionDone(Value, frozen=True, tag_field="type", tag="completion"):
    """One model call has ended; a tool loop yields one per round."""

    completion: Completion


Delta: TypeAlias = TextDelta | ReasoningDelta | RefusalDelta | ToolCallDelta
Event: TypeAlias = Delta | ToolResultDelta | CompletionDone


class Source(Protocol):
    """An open answer of a model: deltas to iterate, then a whole completion.

    A client gives objects with the sync half, the async half, or both.
    ``completion()`` returns what has come so far as a completion.
    """

    def completion(self) -> Completion: ...


class SyncSource(Source, Protocol):
    """The sync half of an open answer."""

    def __iter__(self) -> Iterator[Delta]: ...
    def close(self) -> None: ...


class AsyncSource(Source, Protocol):
    """The async half of an open answer."""

    def __aiter__(self) -> AsyncIterator[Delta]: ...
    async def aclose(self) -> None: ...


class ChatService(Protocol):
    """A client with its model settings: what a kernel or an agent calls.

    ``stream`` and ``astream`` return after the answer has begun; reading them raises
    the same errors as ``complete``, with ``partial`` set.
    """

    def complete(self, request: ChatRequest) -> Completion: ...
    async def acomplete(self, request: ChatRequest) -> Completion: ...
    def stream(self, request: ChatRequest) -> SyncSource: ...
    async def astream(self, request: ChatRequest) -> AsyncSource: ...
