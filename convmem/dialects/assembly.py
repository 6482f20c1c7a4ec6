"""Deltas become a completion: the assembly that every stream decoder shares."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from convmem.chat import (
    Completion,
    Delta,
    FinishReason,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)
from convmem.messages import (
    Content,
    Message,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
    Usage,
)


@dataclass(slots=True)
class CallPieces:
    """One tool call as it grows."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    kind: str = "function"
    extra: dict[str, Any] = field(default_factory=dict)

    def call(self) -> ToolCall:
        return ToolCall(
            id=self.id,
            name=self.name,
            arguments="".join(self.arguments),
            kind=self.kind,
            extra=self.extra,
        )


@dataclass(slots=True)
class Assembly:
    """Everything that has come of one answer.

    ``add`` takes a delta; `completion` may be called at any time. Facts that come
    beside the deltas (usage, ids, finish reason) are set as attributes.
    """

    texts: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    calls: dict[int, CallPieces] = field(default_factory=dict)
    usage: Usage | None = None
    model: str = ""
    id: str = ""
    raw_finish_reason: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    reasoning_extra: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)

    def add(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            self.texts.append(delta.text)
        elif isinstance(delta, ReasoningDelta):
            self.reasoning.append(delta.text)
        elif isinstance(delta, RefusalDelta):
            self.refusals.append(delta.text)
        else:
            self._add_call(delta)

    def _add_call(self, delta: ToolCallDelta) -> None:
        pieces = self.calls.setdefault(delta.index, CallPieces())
        pieces.id = delta.id or pieces.id
        pieces.name = delta.name or pieces.name
        if delta.arguments:
            pieces.arguments.append(delta.arguments)

    def completion(
        self, finish_reason: FinishReason = "interrupted", *, whole: bool = False
    ) -> Completion:
        """Return what has come. Unless ``whole``, the message is marked incomplete."""
        message = Message(
            role="assistant",
            content=self._content(),
            tool_calls=tuple(pieces.call() for pieces in self.calls.values()),
            status="complete" if whole else "incomplete",
            usage=self.usage,
            model=self.model or None,
            metadata=deepcopy(self.metadata),
        )
        return Completion(
            message=message,
            finish_reason=finish_reason,
            raw_finish_reason=self.raw_finish_reason,
            usage=self.usage,
            model=self.model,
            id=self.id,
            extra=deepcopy(self.extra),
        )

    def _content(self) -> Content:
        text = "".join(self.texts)
        if not self.reasoning and not self.refusals:
            return text if text or not self.calls else None
        parts: list[Part] = []
        if self.reasoning:
            parts.append(
                ReasoningPart(
                    text="".join(self.reasoning),
                    producer=self.model or None,
                    extra=self.reasoning_extra,
                )
            )
        if text:
            parts.append(TextPart(text=text))
        if self.refusals:
            parts.append(RefusalPart(text="".join(self.refusals)))
        return tuple(parts)


def deltas_of(message: Message, *, size: int = 0) -> Iterator[Delta]:
    """Yield the deltas that would have made ``message``.

    Texts come in pieces of ``size`` characters (0: in one piece). Media and opaque
    parts have no delta.
    """
    for part in message.parts:
        if isinstance(part, ReasoningPart):
            yield from (ReasoningDelta(text=piece) for piece in _cut(part.text, size))
        elif isinstance(part, TextPart):
            yield from (TextDelta(text=piece) for piece in _cut(part.text, size))
        elif isinstance(part, RefusalPart):
            yield from (RefusalDelta(text=piece) for piece in _cut(part.text, size))
    for index, call in enumerate(message.tool_calls):
        yield ToolCallDelta(index=index, id=call.id, name=call.name)
        for piece in _cut(call.arguments, size):
            yield ToolCallDelta(index=index, arguments=piece)


def _cut(text: str, size: int) -> Iterator[str]:
    step = size or max(len(text), 1)
    return (text[start : start + step] for start in range(0, len(text), step))
