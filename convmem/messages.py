"""Messages as frozen values, and their lossless JSON.

A message has one of five roles and either a text or a list of parts. Parts that
convmem does not know are kept whole as ``OpaquePart``. Values are shallowly frozen:
treat the dicts inside (``metadata``, ``extra``) as read-only.

Message position and time belong to the store: ``position`` is the integer place in
its conversation (never reused), ``created_at`` the time it was stored (UTC).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from convmem.exceptions import InvalidMessage

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]
Status: TypeAlias = Literal["complete", "incomplete", "failed", "corrupt"]
ROLES: tuple[str, ...] = get_args(Role)
SYSTEM_ROLES = frozenset({"system", "developer"})


class Value(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """Shared options. ``gc=False``: frozen trees have no cycles, so the collector
    need not walk ten thousand loaded messages."""


class TextPart(Value, frozen=True, tag_field="type", tag="text"):
    """Text that a reader sees."""

    text: str
    extra: dict[str, Any] = {}


class _Media(Value, frozen=True):
    """Media by ``url`` (http, data: or storage reference), inline base64 ``data`` or a
    provider's ``file_id``; ``media_type`` is an IANA type such as ``image/png``."""

    url: str | None = None
    data: str | None = None
    file_id: str | None = None
    media_type: str | None = None
    extra: dict[str, Any] = {}


class ImagePart(_Media, frozen=True, tag_field="type", tag="image"):
    """A picture; ``detail`` is how closely the model should look."""

    detail: str | None = None


class AudioPart(_Media, frozen=True, tag_field="type", tag="audio"):
    """A recording; ``format`` is a provider's short name such as ``wav``."""

    format: str | None = None


class VideoPart(_Media, frozen=True, tag_field="type", tag="video"):
    """A film."""


class FilePart(_Media, frozen=True, tag_field="type", tag="file"):
    """A document, such as a PDF."""

    filename: str | None = None


class ReasoningPart(Value, frozen=True, tag_field="type", tag="reasoning"):
    """A thinking block. ``signature`` binds it to the model that wrote it
    (``producer``); ``redacted`` is the encrypted payload of a hidden one."""

    text: str = ""
    signature: str | None = None
    redacted: str | None = None
    producer: str | None = None
    extra: dict[str, Any] = {}


class RefusalPart(Value, frozen=True, tag_field="type", tag="refusal"):
    """What the model says in place of an answer that it refuses to give."""

    text: str
    extra: dict[str, Any] = {}


class OpaquePart(Value, frozen=True, tag_field="type", tag="opaque"):
    """A part of a shape that convmem does not know, kept as it came in ``data``."""

    data: Any


Part: TypeAlias = (
    TextPart
    | ImagePart
    | AudioPart
    | VideoPart
    | FilePart
    | ReasoningPart
    | RefusalPart
    | OpaquePart
)
PART_TYPES: tuple[type[Any], ...] = get_args(Part)


class ToolCall(Value, frozen=True):
    """A model's wish to call a tool. ``arguments`` is JSON text exactly as received;
    it may be empty or broken."""

    id: str
    name: str
    arguments: str = ""
    kind: str = "function"
    extra: dict[str, Any] = {}


class Usage(Value, frozen=True):
    """Tokens of one model call. ``input_tokens`` includes ``cached_tokens``,
    ``output_tokens`` includes ``reasoning_tokens``. None means unknown, not zero."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    extra: dict[str, Any] = {}


Content: TypeAlias = str | tuple[Part, ...] | None


class Message(Value, frozen=True):
    """One message of a conversation, whole and immutable.

    ``status`` is ``incomplete`` for a partial answer and for the user's message of a
    turn that was broken off, ``failed`` for a user's message that never got an answer,
    ``corrupt`` for a placeholder of a stored row that can no longer be read.
    ``is_error`` marks a failed tool result. ``supersedes`` names positions of earlier
    replies of the same round that this one replaces. ``sanitized`` is True when
    U+0000 or lone surrogates were replaced by U+FFFD on the way in.
    """

    role: Role
    content: Content = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    is_error: bool = False
    name: str | None = None
    status: Status = "complete"
    usage: Usage | None = None
    model: str | None = None
    metadata: dict[str, Any] = {}
    supersedes: tuple[int, ...] = ()
    sanitized: bool = False
    created_at: datetime | None = None
    position: int | None = None

    @classmethod
    def system(cls, content: Content, **fields: Any) -> Message:
        return cls(role="system", content=content, **fields)

    @classmethod
    def user(cls, content: Content, **fields: Any) -> Message:
        return cls(role="user", content=content, **fields)

    @classmethod
    def assistant(cls, content: Content = None, **fields: Any) -> Message:
        return cls(role="assistant", content=content, **fields)

    @classmethod
    def tool(cls, tool_call_id: str, content: Content, **fields: Any) -> Message:
        return cls(role="tool", tool_call_id=tool_call_id, content=content, **fields)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The content as parts: a text becomes one part, no content an empty tuple."""
        if self.content is None:
            return ()
        if isinstance(self.content, str):
            return (TextPart(text=self.content),)
        return self.content

    @property
    def text(self) -> str:
        """What a reader sees as text: text parts joined, refusals when nothing else."""
        if isinstance(self.content, str):
            return self.content
        texts = [part.text for part in self.parts if isinstance(part, TextPart)]
        return "".join(texts) if texts else self.refusal

    @property
    def refusal(self) -> str:
        return "".join(p.text for p in self.parts if isinstance(p, RefusalPart))

    @property
    def is_empty(self) -> bool:
        """True when a provider would refuse it as empty: no text, media or calls."""
        if self.tool_calls:
            return False
        return not any(
            part.text if isinstance(part, TextPart | RefusalPart) else True
            for part in self.parts
            if not isinstance(part, ReasoningPart)
        )

    def replace(self, **changes: Any) -> Message:
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)


def _plain(value: object) -> str:
    # Django's templates and gettext give subclasses of str.
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{type(value).__name__} is none of JSON's types")


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_decoder = msgspec.json.Decoder(Message)


def encode(message: Message) -> str:
    """Return the message's JSON text, without its position."""
    if message.position is not None:
        message = message.replace(position=None)
    return _encoder.encode(message).decode()


def decode(text: str | bytes) -> Message:
    """Return the message of a JSON text made by `encode`.

    Raises `InvalidMessage` when the text is no message.
    """
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidMessage(f"Not the JSON of a message: {error}.", field=None) from (
            error
        )


def to_dict(message: Message) -> dict[str, Any]:
    """Return plain JSON types; defaults are left out."""
    plain: dict[str, Any] = msgspec.to_builtins(message, enc_hook=_plain)
    for field in ("content", "tool_calls", "supersedes"):
        if isinstance(plain.get(field), tuple):
            plain[field] = list(plain[field])
    return plain
