"""A provider's error answer becomes one of our exceptions, by table.

By code first (it is the most exact), then by HTTP status, then by type; the text only
refines. ``details["kind"]`` is a finer word than the class: authentication,
permission, not_found, invalid_request, too_large, context_length, content_filter,
rate_limited, quota, overloaded, timeout, tool_use_failed, protocol.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from convmem.dialects.waits import retry_after
from convmem.dialects.wirejson import dict_of, int_of, list_of, loads, text_of
from convmem.exceptions import (
    ProviderAuthError,
    ProviderBadResponse,
    ProviderError,
    ProviderRateLimited,
    ProviderRejected,
    ProviderTimeout,
    ProviderUnavailable,
    ToolUseFailed,
)


class Meaning(NamedTuple):
    """What an error means: the exception, a finer kind, and whether to try again."""

    error: type[ProviderError]
    kind: str
    retryable: bool


_AUTHENTICATION = Meaning(ProviderAuthError, "authentication", False)
_PERMISSION = Meaning(ProviderAuthError, "permission", False)
_QUOTA = Meaning(ProviderRateLimited, "quota", False)
_RATE_LIMITED = Meaning(ProviderRateLimited, "rate_limited", True)
_NOT_FOUND = Meaning(ProviderRejected, "not_found", False)
_INVALID = Meaning(ProviderRejected, "invalid_request", False)
_TOO_LARGE = Meaning(ProviderRejected, "too_large", False)
_CONTEXT = Meaning(ProviderRejected, "context_length", False)
_FILTERED = Meaning(ProviderRejected, "content_filter", False)
_CONFLICT = Meaning(ProviderRejected, "conflict", True)
_OVERLOADED = Meaning(ProviderUnavailable, "overloaded", True)
_SERVER = Meaning(ProviderUnavailable, "server_error", True)
_TIMEOUT = Meaning(ProviderTimeout, "timeout", True)
_PROTOCOL = Meaning(ProviderBadResponse, "protocol", False)

BY_CODE: Mapping[str, Meaning] = {
    "tool_use_failed": Meaning(ToolUseFailed, "tool_use_failed", True),
    "context_length_exceeded": _CONTEXT,
    "string_above_max_length": _CONTEXT,
    "content_filter": _FILTERED,
    "content_policy_violation": _FILTERED,
    "insufficient_quota": _QUOTA,
    "billing_hard_limit_reached": _QUOTA,
    "rate_limit_exceeded": _RATE_LIMITED,
    "invalid_api_key": _AUTHENTICATION,
    "model_not_found": _NOT_FOUND,
    "server_error": _SERVER,
    "engine_overloaded": _OVERLOADED,
    "overloaded": _OVERLOADED,
}
BY_STATUS: Mapping[int, Meaning] = {
    401: _AUTHENTICATION,
    402: _QUOTA,
    403: _PERMISSION,
    404: _NOT_FOUND,
    408: _TIMEOUT,
    409: _CONFLICT,
    413: _TOO_LARGE,
    429: _RATE_LIMITED,
    498: _OVERLOADED,
    503: _OVERLOADED,
    504: _TIMEOUT,
    524: _TIMEOUT,
    529: _OVERLOADED,
}
BY_TYPE: Mapping[str, Meaning] = {
    "invalid_request_error": _INVALID,
    "authentication_error": _AUTHENTICATION,
    "permission_error": _PERMISSION,
    "not_found_error": _NOT_FOUND,
    "request_too_large": _TOO_LARGE,
    "rate_limit_error": _RATE_LIMITED,
    "rate_limit_exceeded": _RATE_LIMITED,
    "insufficient_quota": _QUOTA,
    "billing_error": _QUOTA,
    "timeout_error": _TIMEOUT,
    "overloaded_error": _OVERLOADED,
    "api_error": _SERVER,
    "server_error": _SERVER,
}
_TEXTS: tuple[tuple[re.Pattern[str], Meaning], ...] = (
    (
        re.compile(
            r"context[ _](length|window|size)|maximum context|prompt is too long"
            r"|too many (input )?tokens|exceeds? the (available )?context",
            re.IGNORECASE,
        ),
        _CONTEXT,
    ),
)


@dataclass(frozen=True, slots=True)
class ErrorFacts:
    """What an error body says, whatever its shape."""

    message: str = ""
    code: str | None = None
    type: str | None = None
    param: str | None = None
    status: int | None = None
    request_id: str | None = None
    failed_generation: str | None = None


def read_error(body: object) -> ErrorFacts:
    """Return the facts of a decoded error body.

    Known shapes: ``{"error": {...}}`` (also with an integer code) or with a plain text,
    a bare error object, a list holding one of these, problem+json (``title``,
    ``detail``) and FastAPI's ``{"detail": text | list | object}``.
    """
    if isinstance(body, list):
        body = body[0] if body else {}
    if isinstance(body, str):
        return ErrorFacts(message=body)
    whole = dict_of(body)
    inner = whole.get("error")
    if isinstance(inner, str):
        return ErrorFacts(message=inner, code=_word(whole.get("code")))
    if isinstance(inner, dict):
        return _facts(inner, whole)
    return _facts(whole, whole)


def _facts(inner: dict[str, Any], whole: dict[str, Any]) -> ErrorFacts:
    detail = inner.get("detail")
    code = inner.get("code")
    numbers = (code, inner.get("status_code"), inner.get("status"))
    message = text_of(inner.get("message")) or _detail_text(detail)
    return ErrorFacts(
        message=message or text_of(inner.get("title")),
        code=_word(code),
        type=_word(inner.get("type")),
        param=_word(inner.get("param")),
        status=next((n for n in map(int_of, numbers) if n and 400 <= n < 600), None),
        request_id=_word(whole.get("request_id") or whole.get("requestId")),
        failed_generation=inner.get("failed_generation")
        if isinstance(inner.get("failed_generation"), str)
        else None,
    )


def _detail_text(detail: object) -> str:
    if isinstance(detail, dict):
        return text_of(detail.get("message")) or text_of(detail.get("msg"))
    if isinstance(detail, list):
        return "; ".join(map(_problem, list_of(detail)))
    return text_of(detail)


def _problem(item: object) -> str:
    """One entry of a validation error list: where and what."""
    entry = dict_of(item)
    place = ".".join(str(step) for step in list_of(entry.get("loc")))
    text = text_of(entry.get("msg")) or str(item)
    return f"{place}: {text}" if place else text


def _word(value: object) -> str | None:
    if isinstance(value, str):
        return value or None
    return str(value) if isinstance(value, int) else None


def meaning_of(facts: ErrorFacts, status: int | None) -> Meaning:
    """Return what an error means; ``status`` is None inside a stream or a 200."""
    status = status or facts.status
    found = BY_CODE.get(facts.code or "")
    if found is None and status is not None:
        found = BY_STATUS.get(status)
    if found is None:
        found = BY_TYPE.get(facts.type or "") if status in (None, 400) else None
    if found is None:
        found = _by_range(status)
    if found in (_INVALID, _TOO_LARGE):
        for pattern, refined in _TEXTS:
            if pattern.search(facts.message):
                return refined
    return found


def _by_range(status: int | None) -> Meaning:
    if status is None or status >= 500:
        return _SERVER
    return _INVALID if status >= 400 else _PROTOCOL


def error_from_reply(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    provider: str,
    now: datetime | None = None,
) -> ProviderError:
    """Return the exception for an HTTP answer with an error status.

    ``headers`` have lower-case names.
    """
    try:
        facts = read_error(loads(body))
    except ValueError:
        facts = ErrorFacts(message=excerpt(body))
    return build_error(facts, status, headers, provider=provider, now=now)


def build_error(
    facts: ErrorFacts,
    status: int | None,
    headers: Mapping[str, str],
    *,
    provider: str,
    now: datetime | None = None,
) -> ProviderError:
    """Return the exception for ``facts``. ``status`` is None when the HTTP status said
    success (an error inside a stream or a 200)."""
    meaning = meaning_of(facts, status)
    details: dict[str, Any] = {"provider": provider, "kind": meaning.kind}
    details |= {
        "request_id": headers.get("x-request-id")
        or headers.get("request-id")
        or facts.request_id,
        "param": facts.param,
        "failed_generation": facts.failed_generation,
    }
    if meaning.error is ProviderTimeout:
        details["phase"] = "upstream"
    return meaning.error(
        _sentence(facts, status or facts.status, provider),
        upstream_status=status or facts.status,
        upstream_code=facts.code or facts.type,
        retryable=meaning.retryable,
        retry_after=retry_after(headers, now or datetime.now(UTC)),
        **{name: value for name, value in details.items() if value is not None},
    )


def _sentence(facts: ErrorFacts, status: int | None, provider: str) -> str:
    word = facts.code or facts.type
    named = f" ({word})" if word and word != str(status) else ""
    answer = f"error {status}" if status else "an error"
    text = facts.message.strip() or "no message"
    return f"{provider} answered {answer}{named}: {text}"


def excerpt(body: bytes, limit: int = 200) -> str:
    """Return the beginning of a body as one line of text, for a message."""
    text = " ".join(body[: limit * 4].decode("utf-8", "replace").split())
    return text if len(text) <= limit else f"{text[:limit]}..."
