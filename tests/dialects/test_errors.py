from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from convmem.dialects.openai import decode_reply
from convmem.dialects.profiles import CUSTOM
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

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OPENAI_SHAPE = {"error": {"message": "no", "type": None, "param": None, "code": None}}


def error_of(
    status: int, body: Any, headers: dict[str, str] | None = None
) -> ProviderError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(ProviderError) as caught:
        decode_reply(status, headers or {}, data, CUSTOM, now=NOW)
    return caught.value


@pytest.mark.parametrize(
    ("status", "kind", "error", "retryable"),
    [
        (400, "invalid_request", ProviderRejected, False),
        (401, "authentication", ProviderAuthError, False),
        (402, "quota", ProviderRateLimited, False),
        (403, "permission", ProviderAuthError, False),
        (404, "not_found", ProviderRejected, False),
        (408, "timeout", ProviderTimeout, True),
        (409, "conflict", ProviderRejected, True),
        (413, "too_large", ProviderRejected, False),
        (418, "invalid_request", ProviderRejected, False),
        (422, "invalid_request", ProviderRejected, False),
        (429, "rate_limited", ProviderRateLimited, True),
        (498, "overloaded", ProviderUnavailable, True),
        (500, "server_error", ProviderUnavailable, True),
        (502, "server_error", ProviderUnavailable, True),
        (503, "overloaded", ProviderUnavailable, True),
        (504, "timeout", ProviderTimeout, True),
        (529, "overloaded", ProviderUnavailable, True),
    ],
)
def test_statuses(
    status: int, kind: str, error: type[ProviderError], retryable: bool
) -> None:
    found = error_of(status, OPENAI_SHAPE)
    assert type(found) is error
    assert found.details["kind"] == kind
    assert found.retryable is retryable
    assert found.upstream_status == status
    assert found.message == f"custom answered error {status}: no"


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "context_length_exceeded", "context_length"),
        (429, "insufficient_quota", "quota"),
        (400, "content_filter", "content_filter"),
        (400, "model_not_found", "not_found"),
        (503, "engine_overloaded", "overloaded"),
    ],
)
def test_a_code_is_more_exact_than_the_status(
    status: int, code: str, kind: str
) -> None:
    found = error_of(status, {"error": {"message": "no", "code": code}})
    assert found.details["kind"] == kind
    assert found.upstream_code == code


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 8192 tokens.",
        "prompt is too long: 9 tokens > 8 maximum",
        "the request exceeds the available context size",
    ],
)
def test_the_text_refines_a_plain_400(text: str) -> None:
    assert error_of(400, {"error": text}).details["kind"] == "context_length"
    assert error_of(429, {"error": text}).details["kind"] == "rate_limited"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": "model 'x' not found"}, "model 'x' not found"),
        ({"title": "Bad", "status": 400, "detail": "too big"}, "too big"),
        ({"title": "Bad", "status": 400}, "Bad"),
        ({"detail": "Not allowed"}, "Not allowed"),
        (
            {"detail": [{"loc": ["body", "n"], "msg": "extra field"}, {"msg": "x"}]},
            "body.n: extra field; x",
        ),
        ({"detail": {"message": "inner"}}, "inner"),
        ([{"error": {"message": "in a list", "code": 400}}], "in a list"),
        ({"message": "bare", "type": "t"}, "bare"),
        ("plain", "plain"),
        (b"<html>\n<b>Bad   gateway</b>", "<html> <b>Bad gateway</b>"),
        (b"", "no message"),
        ({}, "no message"),
        ([], "no message"),
        (None, "no message"),
    ],
)
def test_shapes_of_error_bodies(body: Any, message: str) -> None:
    assert error_of(400, body).message.endswith(f": {message}")


def test_an_integer_code_is_the_status_inside_a_200() -> None:
    found = error_of(200, {"error": {"code": 429, "message": "slow down"}})
    assert type(found) is ProviderRateLimited
    assert (found.upstream_status, found.upstream_code) == (429, "429")
    assert found.message == "custom answered error 429: slow down"


def test_a_type_counts_inside_a_200() -> None:
    found = error_of(200, {"error": {"type": "overloaded_error", "message": "busy"}})
    assert type(found) is ProviderUnavailable
    assert found.upstream_status is None


def test_an_error_inside_a_choice() -> None:
    body = {"choices": [{"error": {"code": 502, "message": "gone"}}]}
    assert type(error_of(200, body)) is ProviderUnavailable


def test_failed_tool_use_keeps_what_the_model_wrote() -> None:
    inner = {"message": "m", "code": "tool_use_failed", "failed_generation": "<f>"}
    found = error_of(400, {"error": inner})
    assert type(found) is ToolUseFailed
    assert found.details["failed_generation"] == "<f>"
    assert found.retryable is True


def test_headers_give_the_wait_and_the_request() -> None:
    found = error_of(
        429,
        OPENAI_SHAPE,
        {"Retry-After": "Thu, 01 Jan 2026 00:01:00 GMT", "X-Request-Id": "req_1"},
    )
    assert found.retry_after == 60.0
    assert found.details["request_id"] == "req_1"
    assert found.details["provider"] == "custom"


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, b"", "HTTP 200 with an empty body"),
        (202, b"  ", "HTTP 202 with an empty body"),
        (200, b"<html>hello</html>", "no JSON object but text/html: <html>hello"),
        (200, b"[]", "no JSON object"),
        (200, b'{"id": "x"', "no JSON object"),
        (200, b"{}", "has no choices"),
        (200, b'{"choices": []}', "has no choices"),
        (200, b'{"choices": [null]}', "has no choices"),
        (200, b'{"choices": [{}]}', "The choice has no message"),
        (200, b'{"choices": [{"message": {"content": 1}}]}', "not int"),
        (307, b"", "sends us to https://x/; correct the base_url"),
    ],
)
def test_answers_that_break_the_format(status: int, body: bytes, words: str) -> None:
    headers = {"content-type": "text/html", "location": "https://x/"}
    with pytest.raises(ProviderBadResponse) as caught:
        decode_reply(status, headers, body)
    assert words in caught.value.message
    assert caught.value.details["kind"] == "protocol"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["error", "message", "code", "type", "detail", "choices", "usage", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@hypothesis_settings(max_examples=100, deadline=None)
@given(st.sampled_from([200, 400, 500]), json_values)
def test_any_json_is_a_completion_or_our_error(status: int, body: Any) -> None:
    data = json.dumps(body).encode()
    try:
        decode_reply(status, {}, data)
    except ProviderError as error:
        assert error.details["kind"]


@hypothesis_settings(max_examples=60, deadline=None)
@given(st.integers(200, 599), st.binary(max_size=60))
def test_any_bytes_are_our_error(status: int, body: bytes) -> None:
    with pytest.raises(ProviderError):
        decode_reply(status, {}, body)
