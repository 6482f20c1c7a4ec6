"""Estimates of tokens, without a tokenizer.

A counter is any callable from a message to its number of tokens; `estimate` is the
one used when none is given. It knows scripts, not vocabularies: about four characters
a token for ASCII text, two for the alphabets of Europe and the Middle East, one for
Chinese, Japanese, Korean and other scripts further up, half a character for emoji.
Give your own counter where the exact figure matters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from convmem.chat import ChatRequest, ToolSpec
from convmem.messages import (
    AudioPart,
    FilePart,
    ImagePart,
    Message,
    OpaquePart,
    ReasoningPart,
    ToolCall,
    VideoPart,
)

#: Role and separators of one message.
MESSAGE_OVERHEAD = 4
#: Id, type and brackets of one tool call.
CALL_OVERHEAD = 8
#: Name, type and brackets of one offered tool.
TOOL_OVERHEAD = 8
#: Media cannot be measured from a reference; these are middling sizes. An image of
#: about 1024 x 1024 pixels, a minute of sound, half a minute of film, a few pages.
MEDIA_TOKENS: dict[type[Any], int] = {
    ImagePart: 765,
    AudioPart: 1000,
    VideoPart: 8000,
    FilePart: 2000,
}
LOW_DETAIL_IMAGE = 85

_encode_json = msgspec.json.Encoder().encode


class Counter(Protocol):
    """Returns the tokens of one message, itself and its overhead, never negative."""

    def __call__(self, message: Message, /) -> int: ...


def estimate_text(text: str) -> int:
    """Return the estimated tokens of ``text`` (0 when it is empty)."""
    if text.isascii():
        return (len(text) + 3) // 4
    # Counts by width from three encoders in C, instead of a loop over characters.
    # Lone surrogates count as three bytes and one unit, like their neighbours.
    length = len(text)
    one = len(text.encode("ascii", "ignore"))
    four = len(text.encode("utf-16-le", "surrogatepass")) // 2 - length
    size = len(text.encode("utf-8", "surrogatepass"))
    three = size - one - 4 * four - 2 * (length - one - four)
    two = length - one - three - four
    return (one + 2 * two + 4 * three + 8 * four + 3) // 4


def estimate(message: Message) -> int:
    """Return the estimated tokens of one message."""
    content = message.content
    tokens = MESSAGE_OVERHEAD
    if isinstance(content, str):
        # The usual case in place: windows count on every load.
        size = len(content)
        tokens += (size + 3) // 4 if content.isascii() else estimate_text(content)
    elif content:
        tokens += sum(map(_estimate_part, content))
    if message.tool_calls:
        tokens += sum(map(_estimate_call, message.tool_calls))
    if message.name:
        tokens += 1 + estimate_text(message.name)
    if message.tool_call_id:
        tokens += CALL_OVERHEAD
    return tokens


def count_messages(messages: Iterable[Message], counter: Counter | None = None) -> int:
    """Return the tokens of ``messages`` by ``counter`` (`estimate` when None)."""
    return sum(map(counter or estimate, messages))


def estimate_tools(tools: Iterable[ToolSpec]) -> int:
    """Return the estimated tokens of the tools offered to a model."""
    return sum(
        TOOL_OVERHEAD
        + estimate_text(tool.name)
        + estimate_text(tool.description)
        + _estimate_json(tool.parameters)
        for tool in tools
    )


def estimate_request(request: ChatRequest, counter: Counter | None = None) -> int:
    """Return the estimated input tokens of a whole request: messages, tools and the
    schema of the answer."""
    schema = request.response_format
    return (
        count_messages(request.messages, counter)
        + estimate_tools(request.tools)
        + (_estimate_json(schema) if schema else 0)
    )


def _estimate_call(call: ToolCall) -> int:
    return CALL_OVERHEAD + estimate_text(call.name) + estimate_text(call.arguments)


def _estimate_part(part: Any) -> int:
    media = MEDIA_TOKENS.get(type(part))
    if media is not None:
        return LOW_DETAIL_IMAGE if getattr(part, "detail", None) == "low" else media
    if isinstance(part, OpaquePart):
        return _estimate_json(part.data)
    if isinstance(part, ReasoningPart):
        # A signature is proof, not context; the payload of a hidden block is context.
        return estimate_text(part.text) + estimate_text(part.redacted or "")
    return estimate_text(part.text)


def _estimate_json(value: Any) -> int:
    try:
        return estimate_text(_encode_json(value).decode())
    except (TypeError, ValueError):  # not JSON yet: not stored, so not checked
        return estimate_text(repr(value))
