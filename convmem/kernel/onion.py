"""Filters around the model call and around each tool, first in the list outermost."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

from convmem.chat import (
    Completion,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)
from convmem.exceptions import Interrupted, InvalidFilter, ProviderError
from convmem.kernel.context import Context, KernelRequest, ToolRequest
from convmem.kernel.operations import Flow, emit
from convmem.messages import Message, ReasoningPart, RefusalPart, TextPart

Request = TypeVar("Request")
Reply = TypeVar("Reply")
ChatCall: TypeAlias = Callable[[KernelRequest], Flow[Completion]]
ToolStep: TypeAlias = Callable[[ToolRequest], Flow[Message]]


class HistoryFilter(Protocol):
    """A filter that keeps the conversation; it switches a kernel to delta mode."""

    keeps_history: ClassVar[bool]

    def around_chat(
        self, request: KernelRequest, call_next: ChatCall
    ) -> Flow[Completion]: ...

    def settle(self, request: KernelRequest) -> Flow[None]:
        """Leave a valid conversation behind a run that has failed; ``request`` is the
        round that would have come, with the tool results that are known."""
        ...

    def forget(self, context: Context) -> Flow[None]:
        """Clear the conversation of an ephemeral context."""
        ...


@dataclass(frozen=True)
class Layer:
    """One filter, taken apart. A side that it does not have is None."""

    name: str
    around_chat: Callable[[Any, Any], Flow[Any]] | None = None
    around_tool: Callable[[Any, Any], Flow[Any]] | None = None
    buffers: bool = False


def as_layer(candidate: object) -> Layer:
    """Take a filter apart, or raise `InvalidFilter`.

    A filter is a generator function ``(request, call_next)``, or an object with such
    methods ``around_chat`` or ``around_tool``. ``buffers = True`` on either: deltas
    wait until the filter has returned its completion.
    """
    name = getattr(candidate, "__qualname__", type(candidate).__qualname__)
    buffers = bool(getattr(candidate, "buffers", False))
    if isinstance(candidate, type):
        raise InvalidFilter(f"Filter {name} is a class; pass an instance of it.")
    chat = getattr(candidate, "around_chat", None)
    tool = getattr(candidate, "around_tool", None)
    if chat is None and tool is None:
        return Layer(name, _checked(candidate, name), None, buffers)
    return Layer(
        name,
        chat and _checked(chat, f"{name}.around_chat"),
        tool and _checked(tool, f"{name}.around_tool"),
        buffers,
    )


def _checked(function: Any, name: str) -> Callable[[Any, Any], Flow[Any]]:
    if not inspect.isgeneratorfunction(function):
        raise InvalidFilter(
            f"Filter {name} is not a generator function. Write "
            "'def name(request, call_next)' with "
            "'reply = yield from call_next(request)' in it."
        )
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise InvalidFilter(
            f"Filter {name} must take (request, call_next): {error}."
        ) from error
    checked: Callable[[Any, Any], Flow[Any]] = function
    return checked


def chat_chain(layers: Sequence[Layer], end: ChatCall) -> ChatCall:
    """Return the model call with every chat filter around it."""
    for layer in reversed(layers):
        if layer.around_chat is not None:
            end = _buffered(layer, end) if layer.buffers else _plain(layer, end)
    return end


def tool_chain(layers: Sequence[Layer], end: ToolStep) -> ToolStep:
    """Return the tool call with every tool filter around it."""
    for layer in reversed(layers):
        if layer.around_tool is not None:
            end = _around_tool(layer, end)
    return end


def _plain(layer: Layer, call_next: ChatCall) -> ChatCall:
    def call(request: KernelRequest) -> Flow[Completion]:
        assert layer.around_chat is not None  # noqa: S101 - for the type checker
        reply = yield from layer.around_chat(request, call_next)
        return _expect(Completion, reply, layer)

    return call


def _buffered(layer: Layer, call_next: ChatCall) -> ChatCall:
    inner = _plain(layer, lambda request: call_next(request.replace(quiet=True)))

    def call(request: KernelRequest) -> Flow[Completion]:
        try:
            completion = yield from inner(request)
        except (Interrupted, ProviderError) as error:
            error.partial = None  # nobody has seen it, and the filter has not
            raise
        if request.streaming and not request.quiet:
            yield from _replay(completion.message)
        return completion

    return call


def _around_tool(layer: Layer, call_next: ToolStep) -> ToolStep:
    def call(request: ToolRequest) -> Flow[Message]:
        assert layer.around_tool is not None  # noqa: S101 - for the type checker
        reply = yield from layer.around_tool(request, call_next)
        return _expect(Message, reply, layer)

    return call


def _expect(kind: type[Reply], reply: object, layer: Layer) -> Reply:
    if not isinstance(reply, kind):
        raise InvalidFilter(
            f"Filter {layer.name} returned {type(reply).__name__}; it must return the "
            f"{kind.__name__} that 'yield from call_next(request)' gave, or another."
        )
    return reply


def _replay(message: Message) -> Flow[None]:
    """Hand out a finished answer as the deltas that waited for it."""
    for part in message.parts:
        if isinstance(part, ReasoningPart):
            yield from emit(ReasoningDelta(text=part.text))
        elif isinstance(part, RefusalPart):
            yield from emit(RefusalDelta(text=part.text))
        elif isinstance(part, TextPart):
            yield from emit(TextDelta(text=part.text))
    for index, call in enumerate(message.tool_calls):
        yield from emit(
            ToolCallDelta(
                index=index, id=call.id, name=call.name, arguments=call.arguments
            )
        )
