"""The border: what callers pass becomes checked, storable `Message` values.

Two rules hold on every backend. Text: U+0000 and lone surrogates cannot be stored
everywhere, so they become U+FFFD and the message says so (``sanitized``). Numbers:
NaN and the infinities have no JSON and are refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from convmem.exceptions import (
    BadInput,
    EmptyBatch,
    InvalidConversationId,
    InvalidMessage,
    MessageTooLarge,
)
from convmem.messages import (
    PART_TYPES,
    ROLES,
    Message,
    OpaquePart,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
    Usage,
    decode,
    encode,
    to_dict,
)

MAX_ID_LENGTH = 255
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_PATH = re.compile(r" - at (?:`key` in )?`\$\.?(?P<path>[^`]*)`")
_PARTS = {str(kind.__struct_config__.tag): kind for kind in PART_TYPES}
_SHAPES: tuple[type[Any], ...] = (Message, ToolCall, Usage, *PART_TYPES)
_KEYS = {
    kind: frozenset({*kind.__struct_fields__, kind.__struct_config__.tag_field or ""})
    for kind in _SHAPES
}
_NO_JSON = (TypeError, ValueError, OverflowError, RecursionError)


def check_conversation_id(value: object) -> str:
    """Return ``value`` if it is a conversation id, else raise `InvalidConversationId`.

    An id is any string of 1 to 255 characters without U+0000 or lone surrogates. It is
    exact: nothing is stripped, folded or normalised.
    """
    if not isinstance(value, str):
        raise InvalidConversationId(
            f"conversation_id must be a string, not {type(value).__name__}."
        )
    if not value or len(value) > MAX_ID_LENGTH:
        raise InvalidConversationId(
            f"conversation_id must have 1 to {MAX_ID_LENGTH} characters; "
            f"this one has {len(value)}."
        )
    if not is_storable(value):
        raise InvalidConversationId(
            "conversation_id holds U+0000 or a lone surrogate; use other characters."
        )
    return str.__str__(value)


def is_storable(text: str) -> bool:
    """Whether every database can keep the text: no U+0000, no lone surrogate."""
    return _UNSTORABLE.search(text) is None


def as_message(value: object, *, index: int | None = None) -> Message:
    """Return the checked message for a string (a user's text), a mapping of plain JSON
    types, or a `Message`.

    Raises `InvalidMessage` with ``details`` ``index`` and ``field``.
    """
    if isinstance(value, str):
        return Message(role="user", content=str.__str__(value))
    if isinstance(value, Message):
        message = value
    elif isinstance(value, Mapping):
        message = _from_mapping(value, index)
    else:
        raise _invalid(
            index, None, f"a message is a string, dict or Message, not {_kind(value)}"
        )
    _check_rules(message, index)
    return message


def as_messages(value: object) -> list[Message]:
    """Return the checked messages of one item (string, mapping, `Message`) or of a
    sequence of them. Raises `InvalidMessage` for anything else."""
    if isinstance(value, str | Message | Mapping):
        return [as_message(value, index=0)]
    return check_list(value)


def check_list(value: object) -> list[Message]:
    """Return the checked messages of a sequence; refuse a lone string or mapping."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        raise InvalidMessage(
            f"messages must be a list of messages, not {_kind(value)}.",
            index=None,
            field=None,
        )
    return [as_message(item, index=index) for index, item in enumerate(value)]


def check_batch(value: object) -> list[Message]:
    """Return the checked messages of a non-empty sequence, for ``add``."""
    messages = check_list(value)
    if not messages:
        raise EmptyBatch("add() needs at least one message; the list is empty.")
    return messages


def storable(
    message: Message, *, index: int | None = None, max_bytes: int
) -> tuple[Message, str]:
    """Return the message as it will be read back, and its JSON text.

    Python values that JSON has no type for come back as the nearest one it has (a tuple
    as a list, a date as text). Raises `InvalidMessage` (wrong types, NaN, no time zone)
    or `MessageTooLarge` (its text, in UTF-8, is over ``max_bytes``).
    """
    if message.position is not None:
        message = message.replace(position=None)
    if message.created_at is not None:
        message = message.replace(created_at=_utc(message.created_at, index))
    body = _json(message, index)
    try:
        stored = decode(body)
    except InvalidMessage as error:
        field = _field_of(str(error))
        raise _invalid(index, field, str(error).rstrip(".")) from error
    if len(body) > max_bytes // 4:
        _check_size(stored, index, max_bytes)
    return stored, body


def _utc(when: object, index: int | None) -> datetime:
    # Offsets with seconds have no place in RFC 3339, hence UTC before JSON.
    if not isinstance(when, datetime) or when.utcoffset() is None:
        raise _invalid(
            index,
            "created_at",
            f"it must be a datetime with a time zone, not {_shown(when)}",
        )
    try:
        return when.astimezone(UTC)
    except OverflowError as error:
        raise _invalid(
            index, "created_at", f"{_shown(when)} has no time in UTC ({error})"
        ) from error


def _json(message: Message, index: int | None) -> str:
    try:
        body = encode(message)
    except UnicodeEncodeError:
        body = _sanitized(message, index)
    except _NO_JSON as error:
        raise _without_json(message, index, error) from error
    if "\\u0000" in body:  # or a text that spells it: then nothing changes
        body = _sanitized(message, index)
    if "null" in body:  # what msgspec writes for NaN
        _check_numbers(message, index)
    return body


def _sanitized(message: Message, index: int | None) -> str:
    """Return the JSON of the message by the text rule."""
    try:
        plain = to_dict(message)
        cleaned = _clean(plain)
        if cleaned != plain:
            cleaned["sanitized"] = True
        return msgspec.json.encode(cleaned).decode()
    except _NO_JSON as error:
        raise _without_json(message, index, error) from error


def _without_json(message: Message, index: int | None, error: Exception) -> BadInput:
    """Return the error that names the field whose value has no JSON."""
    for name in Message.__struct_fields__:
        try:
            encode(Message(role="user", metadata={"": getattr(message, name)}))
        except UnicodeEncodeError:
            continue  # mended by the text rule
        except _NO_JSON:
            return _invalid(index, name, f"it has no JSON ({error})")
    return _invalid(index, None, f"it has no JSON ({error})")


def _from_mapping(value: Mapping[Any, Any], index: int | None) -> Message:
    plain = {key: _exact(item) for key, item in value.items() if key != "position"}
    unknown = sorted(str(key) for key in set(plain) - _KEYS[Message])
    if unknown:
        raise _invalid(
            index, unknown[0], f"unknown field {unknown[0]!r}; put it in 'metadata'"
        )
    role = plain.get("role")
    if role not in ROLES:
        raise _invalid(
            index, "role", f"role {_shown(role)} is none of {', '.join(ROLES)}"
        )
    _refuse_wire_calls(plain.get("tool_calls"), index)
    _keep_unknown_keys(plain)
    try:
        return msgspec.convert(plain, Message)
    except msgspec.ValidationError as error:
        raise _invalid(index, _field_of(str(error)), str(error)) from error
    except _NO_JSON as error:  # a lone surrogate where a number belongs, for one
        raise _unreadable(plain, index, error) from error


def _unreadable(plain: dict[str, Any], index: int | None, error: Exception) -> BadInput:
    """Return the error that names the field whose value cannot even be looked at."""
    for name, item in plain.items():
        try:
            msgspec.convert({"role": plain["role"], name: item}, Message)
        except msgspec.ValidationError as wrong:
            return _invalid(index, name, str(wrong))
        except _NO_JSON:
            return _invalid(index, name, f"it has a wrong type or text ({error})")
    return _invalid(index, None, f"it cannot be read ({error})")


def _refuse_wire_calls(calls: object, index: int | None) -> None:
    if not isinstance(calls, Sequence):
        return
    for call in calls:
        if isinstance(call, Mapping) and "function" in call:
            raise _invalid(
                index,
                "tool_calls",
                "this is the OpenAI wire shape; decode it with "
                "convmem.dialects.openai.decode_message()",
            )


def _keep_unknown_keys(plain: dict[str, Any]) -> None:
    """Put whatever has no field of its own where it is kept: a part of an unknown type
    into an opaque part, an unknown key of a known shape into ``extra``."""
    content = plain.get("content")
    if isinstance(content, list | tuple):
        plain["content"] = [_known_part(part) for part in content]
    calls = plain.get("tool_calls")
    if isinstance(calls, list | tuple):
        plain["tool_calls"] = [_with_extra(call, ToolCall) for call in calls]
    plain["usage"] = _with_extra(plain.get("usage"), Usage)


def _known_part(part: object) -> object:
    if isinstance(part, str):
        return {"type": "text", "text": _exact(part)}
    if not isinstance(part, Mapping):
        return part
    tag = part.get("type")
    kind = _PARTS.get(tag) if isinstance(tag, str) else None
    if kind is None or (kind is OpaquePart and not _KEYS[kind] >= set(part)):
        return {"type": "opaque", "data": dict(part)}
    return _with_extra(part, kind)


def _with_extra(value: object, kind: type[Any]) -> object:
    if not isinstance(value, Mapping):
        return value
    keys = _KEYS[kind]
    known = {key: _exact(item) for key, item in value.items() if key in keys}
    unknown = {key: item for key, item in value.items() if key not in keys}
    extra = known.get("extra", {})
    if unknown and isinstance(extra, Mapping):
        known["extra"] = {**unknown, **extra}
    return known


def _exact(value: object) -> object:
    """Return a plain ``str`` for a subclass, such as a template's output."""
    return str.__str__(value) if isinstance(value, str) else value


def _check_rules(message: Message, index: int | None) -> None:
    if message.role not in ROLES:
        raise _invalid(
            index, "role", f"role {_shown(message.role)} is none of {', '.join(ROLES)}"
        )
    if message.role == "tool" and not message.tool_call_id:
        raise _invalid(
            index, "tool_call_id", "a tool message needs the id of the call it answers"
        )
    if message.role != "assistant":
        if message.tool_calls:
            raise _invalid(index, "tool_calls", "only an assistant message calls tools")
        if message.content is None:
            raise _invalid(
                index, "content", f"a {message.role} message needs content (or '')"
            )


def _check_numbers(message: Message, index: int | None) -> None:
    for name, value in to_dict(message).items():
        if _has_nonfinite(value):
            raise _invalid(index, name, "NaN and Infinity have no JSON; use null")


def _has_nonfinite(value: object) -> bool:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, float):
            if not math.isfinite(item):
                return True
        elif isinstance(item, Mapping):
            stack.extend(item.values())
        elif isinstance(item, list | tuple | set | frozenset):
            stack.extend(item)
    return False


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return _UNSTORABLE.sub("�", value)
    if isinstance(value, Mapping):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value


def _check_size(message: Message, index: int | None, max_bytes: int) -> None:
    content = sum(
        len(part.text.encode())
        for part in message.parts
        if isinstance(part, TextPart | ReasoningPart | RefusalPart)
    )
    calls = sum(len(call.arguments.encode()) for call in message.tool_calls)
    if content + calls > max_bytes:
        raise MessageTooLarge(
            f"{_where(index)} has {content + calls} bytes of text; "
            f'CONVMEM["MAX_MESSAGE_BYTES"] allows {max_bytes}.',
            index=index,
            field="content" if content >= calls else "tool_calls",
        )


def _field_of(error: str) -> str | None:
    match = _PATH.search(error)
    if match is None:
        return None
    return re.split(r"[.\[]", match["path"])[0] or None


def _where(index: int | None) -> str:
    return "The message" if index is None else f"Message {index}"


def _kind(value: object) -> str:
    return type(value).__name__


def _shown(value: object) -> str:
    """Return what an error says of any value: not all of them can be written."""
    try:
        return f"{value!r:.80}"
    except Exception:  # noqa: BLE001 - the value's own, or too deep or too long
        return f"of type {_kind(value)}"


def _invalid(index: int | None, field: str | None, reason: str) -> BadInput:
    place = f", field {field!r}" if field else ""
    return InvalidMessage(
        f"{_where(index)}{place}: {reason}.", index=index, field=field
    )
