"""Messages, tool calls and usage of the OpenAI chat format, both ways.

`decode_message` and `encode_message` with the `LOSSLESS` profile are inverse, with
these normalisations: null and empty-list fields that convmem does not know go; content
that is null beside no tool calls becomes an empty text; ``refusal`` beside the content
becomes a refusal part; an image given as a bare string becomes an object; a single
plain text part beside reasoning becomes a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from convmem.dialects.openai_parts import (
    Wire,
    decode_part,
    encode_parts,
    kept_fields,
)
from convmem.dialects.profiles import LOSSLESS, Profile
from convmem.dialects.wirejson import dict_of, dumps, int_of, text_of
from convmem.exceptions import InvalidMessage
from convmem.messages import (
    ROLES,
    Content,
    Message,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
    Usage,
)

#: The key of ``Message.metadata`` under which unknown wire fields are kept.
WIRE = "wire"
LEGACY_CALL = "function_call"

_KNOWN = frozenset(
    {"role", "content", "name", "tool_call_id", "tool_calls", "refusal", LEGACY_CALL}
)
_REASONING = ("reasoning_content", "reasoning")
_NOTHING: tuple[Any, ...] = (None, [])


# --- from the wire ---


def decode_message(
    wire: object,
    *,
    index: int | None = None,
    seed: str = "",
    reasoning_fields: tuple[str, ...] = _REASONING,
) -> Message:
    """Return the message of a wire dict.

    ``index`` is its place in a list, for errors. ``seed`` makes the ids of calls that
    have none: equal seeds give equal ids. Unknown fields are kept in
    ``metadata["wire"]``. Raises `InvalidMessage` with ``index`` and ``field``.
    """
    if not isinstance(wire, Mapping):
        raise _invalid(index, None, f"a message is an object, not {_kind(wire)}")
    role = wire.get("role")
    if role == "function":
        return _legacy_result(wire, index)
    if role not in ROLES:
        raise _invalid(index, "role", f"role {role!r} is none of {', '.join(ROLES)}")
    calls = decode_calls(wire, index=index, seed=seed)
    if role != "assistant" and calls:
        raise _invalid(index, "tool_calls", "only an assistant message calls tools")
    rest = {
        key: item
        for key, item in wire.items()
        if key not in _KNOWN and key not in reasoning_fields and item not in _NOTHING
    }
    return Message(
        role=role,
        content=_content(wire, calls, reasoning_fields, index),
        tool_calls=calls,
        tool_call_id=_result_id(wire, role, index),
        name=_optional_text(wire, "name", index),
        metadata={WIRE: rest} if rest else {},
    )


def _content(
    wire: Mapping[str, Any],
    calls: tuple[ToolCall, ...],
    reasoning_fields: tuple[str, ...],
    index: int | None,
) -> Content:
    before = _reasoning(wire, reasoning_fields)
    after: list[Part] = []
    if isinstance(wire.get("refusal"), str) and wire["refusal"]:
        after = [RefusalPart(text=wire["refusal"])]
    content = wire.get("content")
    if content == []:
        content = None
    if isinstance(content, str) or content is None:
        if before or after:
            text = [TextPart(text=content)] if content else []
            return (*before, *text, *after)
        return None if content is None and calls else content or ""
    if not isinstance(content, list | tuple):
        raise _invalid(
            index, "content", f"content is a text or a list, not {_kind(content)}"
        )
    return (*before, *map(decode_part, content), *after)


def _reasoning(wire: Mapping[str, Any], fields: tuple[str, ...]) -> list[Part]:
    for name in fields:
        if isinstance(wire.get(name), str) and wire[name]:
            return [ReasoningPart(text=wire[name], extra={"field": name})]
    return []


def decode_calls(
    wire: Mapping[str, Any], *, index: int | None = None, seed: str = ""
) -> tuple[ToolCall, ...]:
    """Return the tool calls of a wire message, also of the legacy ``function_call``.

    A call without an id gets one made of ``seed`` and its place.
    """
    legacy = wire.get(LEGACY_CALL)
    if isinstance(legacy, Mapping):
        name = text_of(legacy.get("name"))
        arguments = arguments_text(legacy.get("arguments"))
        return (
            ToolCall(
                id=legacy_id(name), name=name, arguments=arguments, kind=LEGACY_CALL
            ),
        )
    calls = wire.get("tool_calls")
    if calls is None:
        return ()
    if not isinstance(calls, list | tuple):
        raise _invalid(index, "tool_calls", f"a list is needed, not {_kind(calls)}")
    return tuple(_call(call, n, index, seed) for n, call in enumerate(calls))


def _call(call: object, place: int, index: int | None, seed: str) -> ToolCall:
    if not isinstance(call, Mapping):
        raise _invalid(
            index, "tool_calls", f"call {place} is {_kind(call)}, not an object"
        )
    kind = text_of(call.get("type")) or "function"
    inner = call.get(kind)
    if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
        raise _invalid(
            index, "tool_calls", f"call {place} has no {kind!r} object with a 'name'"
        )
    given = call.get("id")
    return ToolCall(
        id=str(given) if given not in (None, "") else made_id(seed, place),
        name=inner["name"],
        arguments=arguments_text(inner.get(_arguments_field(kind))),
        kind=kind,
        extra={k: v for k, v in call.items() if k not in ("id", "type", kind)},
    )


def made_id(seed: str, place: int) -> str:
    """Return the id for a call that came without one: equal input, equal id."""
    return "call_" + sha256(f"{seed}:{place}".encode()).hexdigest()[:24]


def arguments_text(value: object) -> str:
    """Return arguments as JSON text; some servers send an object, or null."""
    if value is None:
        return ""
    return value if isinstance(value, str) else dumps(value).decode()


def _arguments_field(kind: str) -> str:
    return "input" if kind == "custom" else "arguments"


def legacy_id(name: str) -> str:
    """Return a legacy call's id: it is paired by name, so both ends get the same."""
    return f"{LEGACY_CALL}:{name}"


def _legacy_result(wire: Mapping[str, Any], index: int | None) -> Message:
    name = _optional_text(wire, "name", index) or ""
    content = _content(wire, (), (), index)
    return Message.tool(legacy_id(name), content, name=name)


def _result_id(wire: Mapping[str, Any], role: str, index: int | None) -> str | None:
    if role != "tool":
        return None
    given = _optional_text(wire, "tool_call_id", index)
    if not given:
        raise _invalid(
            index, "tool_call_id", "a tool message needs the id of the call it answers"
        )
    return given


def _optional_text(wire: Mapping[str, Any], name: str, index: int | None) -> str | None:
    value = wire.get(name)
    if value is None or isinstance(value, str):
        return value
    raise _invalid(index, name, f"{name} must be a string, not {_kind(value)}")


def decode_usage(wire: object) -> Usage | None:
    """Return the usage of a reply, None for null or an empty object.

    Counts of other names and all details are kept in ``extra``.
    """
    given = dict_of(wire)
    if not given:
        return None
    cached = dict_of(given.get("prompt_tokens_details")).get("cached_tokens")
    for other in ("prompt_cache_hit_tokens", "num_cached_tokens"):
        cached = given.get(other) if cached is None else cached
    details = dict_of(given.get("completion_tokens_details"))
    extra = {key: item for key, item in given.items() if key not in _COUNTS}
    return Usage(
        input_tokens=int_of(given.get("prompt_tokens")),
        output_tokens=int_of(given.get("completion_tokens")),
        total_tokens=int_of(given.get("total_tokens")),
        cached_tokens=int_of(cached),
        reasoning_tokens=int_of(details.get("reasoning_tokens")),
        extra=extra,
    )


_COUNTS = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})


# --- to the wire ---


def encode_message(message: Message, profile: Profile = LOSSLESS) -> Wire:
    """Return the wire dict of ``message`` for a provider."""
    if message.tool_call_id and message.tool_call_id.startswith(f"{LEGACY_CALL}:"):
        return {"role": "function", "name": message.name or "", "content": message.text}
    wire: Wire = {"role": message.role}
    if message.role == "developer" and not profile.developer_role:
        wire["role"] = "system"
    wire |= _encode_content(message, profile)
    if message.role == "assistant":
        wire |= _encode_reasoning(message, profile)
        wire |= _encode_calls(message, profile)
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    if message.name is not None and profile.names:
        wire["name"] = message.name
    wire |= kept_fields(dict_of(message.metadata.get(WIRE)), profile)
    return wire


def _encode_content(message: Message, profile: Profile) -> Wire:
    content = message.content
    if isinstance(content, tuple):
        content = _without_reasoning(content)
    if not content and content != "" and message.tool_calls:
        return _NULL_CONTENT[profile.null_content]
    if isinstance(content, tuple) and content:
        return {"content": encode_parts(content, profile)}
    return {"content": content or ""}


def _without_reasoning(parts: tuple[Part, ...]) -> tuple[Part, ...] | str:
    rest = tuple(part for part in parts if not isinstance(part, ReasoningPart))
    if len(rest) == 1 and len(parts) > 1 and isinstance(rest[0], TextPart):
        return rest if rest[0].extra else rest[0].text
    return rest


_NULL_CONTENT: Mapping[str, Wire] = {
    "null": {"content": None},
    "empty": {"content": ""},
    "omit": {},
}


def _encode_reasoning(message: Message, profile: Profile) -> Wire:
    parts = [part for part in message.parts if isinstance(part, ReasoningPart)]
    if not parts or profile.history_reasoning is None:
        return {}
    field = profile.history_reasoning
    if profile.extra_fields is None:
        field = parts[0].extra.get("field", field)
    return {field: "".join(part.text for part in parts)}


def _encode_calls(message: Message, profile: Profile) -> Wire:
    if not message.tool_calls:
        return {}
    first = message.tool_calls[0]
    if first.kind == LEGACY_CALL:
        return {LEGACY_CALL: {"name": first.name, "arguments": first.arguments}}
    return {"tool_calls": [_encode_call(call, profile) for call in message.tool_calls]}


def _encode_call(call: ToolCall, profile: Profile) -> Wire:
    arguments = call.arguments or profile.empty_arguments
    if call.kind == "custom":
        arguments = call.arguments
    inner = {"name": call.name, _arguments_field(call.kind): arguments}
    wire: Wire = {"id": call.id, "type": call.kind, call.kind: inner}
    return wire | kept_fields(call.extra, profile)


def encode_usage(usage: Usage) -> Wire:
    """Return the wire form of ``usage``; unknown counts are left out."""
    counts = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    }
    wire: Wire = {key: count for key, count in counts.items() if count is not None}
    wire |= usage.extra
    nested = (
        ("prompt_tokens_details", "cached_tokens", usage.cached_tokens),
        ("completion_tokens_details", "reasoning_tokens", usage.reasoning_tokens),
    )
    for group, name, count in nested:
        if count is not None:
            wire[group] = {**dict_of(wire.get(group)), name: count}
    return wire


def _kind(value: object) -> str:
    return type(value).__name__


def _invalid(index: int | None, field: str | None, reason: str) -> InvalidMessage:
    where = "The message" if index is None else f"Message {index}"
    place = f", field {field!r}" if field else ""
    return InvalidMessage(f"{where}{place}: {reason}.", index=index, field=field)
