"""The border: what callers pass becomes checked, storable `Message` values.

Two rules hold on every backend. Text: U+0000 and lone surrogates cannot be stored
everywhere, so they become U+FFFD and the message says so (``sanitized``). Numbers:
NaN and the infinities have no JSON and are refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
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
    PART_TAGS,
    ROLES,
    Message,
    OpaquePart,
    TextPart,
    decode,
    encode,
)

MAX_ID_LENGTH = 255
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_PATH = re.compile(r" - at `\$\.?(?P<path>[^`]*)`")


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
    if _UNSTORABLE.search(value):
        raise InvalidConversationId(
            "conversation_id holds U+0000 or a lone surrogate; use other characters."
        )
    return value


def as_message(value: object, *, index: int | None = None) -> Message:
    """Return the checked message for a string (a user's text), a mapping of plain JSON
    types, or a `Message`.

    Raises `InvalidMessage` with ``details`` ``index`` and ``field``.
    """
    if isinstance(value, str):
        return Message(role="user", content=value)
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

    Raises `InvalidMessage` (wrong types, NaN) or `MessageTooLarge` (its text, in UTF-8,
    is over ``max_bytes``).
    """
    if message.position is not None:
        message = message.replace(position=None)
    _check_numbers(message, index)
    try:
        body = encode(message)
        if "\\u0000" in body:
            message, body = _sanitized(message)
    except UnicodeEncodeError:
        message, body = _sanitized(message)
    except (TypeError, ValueError, RecursionError) as error:
        raise _invalid(index, None, f"it has no JSON ({error})") from error
    if len(body) > max_bytes // 4:
        _check_size(message, index, max_bytes)
    try:
        return decode(body), body
    except (InvalidMessage, RecursionError) as error:
        field = _field_of(str(error))
        raise _invalid(index, field, str(error).rstrip(".")) from error


def _from_mapping(value: Mapping[Any, Any], index: int | None) -> Message:
    plain = {key: item for key, item in value.items() if key != "position"}
    unknown = sorted(str(key) for key in set(plain) - set(Message.__struct_fields__))
    if unknown:
        raise _invalid(
            index, unknown[0], f"unknown field {unknown[0]!r}; put it in 'metadata'"
        )
    role = plain.get("role")
    if role not in ROLES:
        raise _invalid(index, "role", f"role {role!r} is none of {', '.join(ROLES)}")
    _refuse_wire_calls(plain.get("tool_calls"), index)
    content = plain.get("content")
    if isinstance(content, list | tuple):
        plain["content"] = [_known_part(part) for part in content]
    try:
        return msgspec.convert(plain, Message)
    except msgspec.ValidationError as error:
        raise _invalid(index, _field_of(str(error)), str(error)) from error


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


def _known_part(part: object) -> object:
    """Wrap a part of an unknown shape so that it is kept as it is."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if isinstance(part, Mapping) and part.get("type") not in PART_TAGS:
        return {"type": "opaque", "data": dict(part)}
    return part


def _check_rules(message: Message, index: int | None) -> None:
    if message.role not in ROLES:
        raise _invalid(
            index, "role", f"role {message.role!r} is none of {', '.join(ROLES)}"
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
    for name, value in _free_values(message):
        if _has_nonfinite(value):
            raise _invalid(index, name, "NaN and Infinity have no JSON; use null")


def _free_values(message: Message) -> list[tuple[str, Any]]:
    """Return the fields whose values are free JSON, where a float may hide."""
    found: list[tuple[str, Any]] = []
    if message.metadata:
        found.append(("metadata", message.metadata))
    if message.usage is not None and message.usage.extra:
        found.append(("usage", message.usage.extra))
    if isinstance(message.content, tuple | list):
        for part in message.content:
            if isinstance(part, OpaquePart):
                found.append(("content", part.data))
            elif getattr(part, "extra", None):
                found.append(("content", part.extra))
    found += [("tool_calls", call.extra) for call in message.tool_calls if call.extra]
    return found


def _has_nonfinite(value: object) -> bool:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, float):
            if not math.isfinite(item):
                return True
        elif isinstance(item, Mapping):
            stack.extend(item.values())
        elif isinstance(item, list | tuple):
            stack.extend(item)
    return False


def _sanitized(message: Message) -> tuple[Message, str]:
    plain = msgspec.to_builtins(message)
    cleaned = _clean(plain)
    if cleaned != plain:
        message = msgspec.convert({**cleaned, "sanitized": True}, Message)
    return message, encode(message)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return _UNSTORABLE.sub("�", value)
    if isinstance(value, Mapping):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value


def _check_size(message: Message, index: int | None, max_bytes: int) -> None:
    size = sum(
        len(part.text.encode()) for part in message.parts if isinstance(part, TextPart)
    ) + sum(len(call.arguments.encode()) for call in message.tool_calls)
    if size > max_bytes:
        raise MessageTooLarge(
            f"{_where(index)} has {size} bytes of text; "
            f'CONVMEM["MAX_MESSAGE_BYTES"] allows {max_bytes}.',
            index=index,
            field="content",
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


def _invalid(index: int | None, field: str | None, reason: str) -> BadInput:
    place = f", field {field!r}" if field else ""
    return InvalidMessage(
        f"{_where(index)}{place}: {reason}.", index=index, field=field
    )
