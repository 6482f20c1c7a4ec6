"""A whole answer of the OpenAI chat format: one completion, or one of our errors."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from convmem.chat import Completion, FinishReason
from convmem.dialects.errors import build_error, error_from_reply, excerpt, read_error
from convmem.dialects.openai_messages import decode_message, decode_usage
from convmem.dialects.profiles import CUSTOM, Profile
from convmem.dialects.wirejson import dict_of, list_of, loads, text_of
from convmem.exceptions import InvalidMessage, ProviderBadResponse, ProviderError
from convmem.messages import Message, ReasoningPart

FINISH_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "safety": "content_filter",
}
# What a completion has fields for, and padding.
_NOT_EXTRA = frozenset(
    {"id", "object", "model", "choices", "usage", "error", "obfuscation"}
)


def decode_reply(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    profile: Profile = CUSTOM,
    *,
    now: datetime | None = None,
) -> Completion:
    """Return the completion of an answer that is not streamed.

    Other choices than the first are kept in ``extra["choices"]``. ``now`` is for HTTP
    dates in headers. Raises the `ProviderError` that a refusal means, also for an error
    inside a 200, and `ProviderBadResponse` when the body is not of this format.
    """
    lowered = {name.lower(): value for name, value in headers.items()}
    if status >= 400:
        raise error_from_reply(status, lowered, body, provider=profile.name, now=now)
    reply = _parsed(status, lowered, body, profile)
    if reply.get("error"):
        raise build_error(
            read_error(reply), None, lowered, provider=profile.name, now=now
        )
    choices = [c for c in list_of(reply.get("choices")) if isinstance(c, dict)]
    if not choices:
        raise bad_response(profile, "the answer has no choices", lowered, status)
    first = choices[0]
    if first.get("error"):
        raise build_error(
            read_error(first), None, lowered, provider=profile.name, now=now
        )
    try:
        return _completion(reply, first, choices[1:], profile)
    except InvalidMessage as error:
        raise bad_response(profile, error.message, lowered, status) from error


def _parsed(
    status: int, headers: Mapping[str, str], body: bytes, profile: Profile
) -> dict[str, Any]:
    if not 200 <= status < 300:
        where = headers.get("location", "elsewhere")
        reason = f"HTTP {status} sends us to {where}; correct the base_url"
        raise bad_response(profile, reason, headers, status)
    if not body.strip():
        reason = f"HTTP {status} with an empty body"
        error = bad_response(profile, reason, headers, status)
        error.retryable = status == 202  # accepted, and not ready yet
        raise error
    try:
        reply = loads(body)
    except ValueError:
        reply = None
    if not isinstance(reply, dict):
        kind = headers.get("content-type", "an unknown type")
        reason = f"no JSON object but {kind}: {excerpt(body, 80)}"
        raise bad_response(profile, reason, headers, status)
    return reply


def _completion(
    reply: dict[str, Any],
    first: dict[str, Any],
    others: list[dict[str, Any]],
    profile: Profile,
) -> Completion:
    model = text_of(reply.get("model"))
    usage = decode_usage(reply.get("usage"))
    message = _message(first, reply, profile).replace(usage=usage, model=model or None)
    raw = text_of(first.get("finish_reason")) or None
    extra = {**extra_of(reply), **choice_extra(first)}
    if others:
        extra["choices"] = others
    return Completion(
        message=_stamped(message, model),
        finish_reason=finish_reason(raw, has_calls=bool(message.tool_calls)),
        raw_finish_reason=raw,
        usage=usage,
        model=model,
        id=text_of(reply.get("id")),
        extra=extra,
    )


def _message(
    choice: dict[str, Any], reply: dict[str, Any], profile: Profile
) -> Message:
    wire = choice.get("message")
    if not isinstance(wire, dict):
        raise InvalidMessage("The choice has no message.", index=None, field="message")
    return decode_message(
        {**wire, "role": "assistant"},
        seed=seed_of(reply),
        reasoning_fields=profile.reasoning_fields,
    )


def _stamped(message: Message, model: str) -> Message:
    """Note on reasoning which model wrote it."""
    if not isinstance(message.content, tuple) or not model:
        return message
    return message.replace(
        content=tuple(
            ReasoningPart(text=part.text, producer=model, extra=part.extra)
            if isinstance(part, ReasoningPart)
            else part
            for part in message.content
        )
    )


def seed_of(reply: Mapping[str, Any]) -> str:
    """Return what the made ids of one answer's calls are made of."""
    return text_of(reply.get("id")) or str(reply.get("created") or "")


def extra_of(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of an answer or chunk that a completion has no field for."""
    return {k: v for k, v in reply.items() if k not in _NOT_EXTRA and v is not None}


def choice_extra(choice: Mapping[str, Any]) -> dict[str, Any]:
    """Return a choice's facts beside its message, such as ``logprobs``."""
    known = ("index", "message", "delta", "finish_reason")
    return {k: v for k, v in choice.items() if k not in known and v is not None}


def finish_reason(raw: str | None, *, has_calls: bool) -> FinishReason:
    """Return our word for the provider's; an answer with calls waits for results."""
    reason = FINISH_REASONS.get((raw or "").lower(), "unknown")
    if has_calls and reason in ("stop", "unknown"):
        return "tool_calls"
    return reason


def bad_response(
    profile: Profile,
    reason: str,
    headers: Mapping[str, str] | None = None,
    status: int | None = None,
) -> ProviderError:
    """Return the error for an answer that breaks the format."""
    details: dict[str, Any] = {"provider": profile.name, "kind": "protocol"}
    request_id = dict_of(dict(headers or {})).get("x-request-id")
    if request_id:
        details["request_id"] = request_id
    return ProviderBadResponse(
        f"{profile.name}: {reason.rstrip('.')}.", upstream_status=status, **details
    )
