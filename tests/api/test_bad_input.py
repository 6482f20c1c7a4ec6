"""Whatever a caller sends wrongly is answered by name, and nothing is half-written."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from convmem.agent import Agent, override_agent
from convmem.models import Conversation, Run, StoredMessage
from convmem.testing.service import FakeService
from tests.api.conftest import API, messages, post, problem_of, user_says

pytestmark = pytest.mark.usefixtures("_runs_in_the_tests_transaction")
HERE = messages("talk")
RUNS = f"{API}runs/"
GOOD = {"role": "user", "content": "fine"}


@pytest.fixture
def _runs_in_the_tests_transaction(settings: Any) -> None:
    settings.CONVMEM = {"ALLOW_RUN_IN_TRANSACTION": True}


def nested(depth: int) -> bytes:
    return b'{"messages": ' + b"[" * depth + b"]" * depth + b"}"


def nothing_is_written() -> bool:
    return not (
        StoredMessage.objects.exists()
        or Conversation.objects.exists()
        or Run.objects.exists()
    )


BAD_MESSAGES: dict[str, tuple[Any, str | None]] = {
    "wrong role": ({"role": "robot", "content": "hi"}, "role"),
    "no role": ({"content": "hi"}, "role"),
    "role of a wrong type": ({"role": 7, "content": "hi"}, "role"),
    "tool result without a call's id": (
        {"role": "tool", "content": "x"},
        "tool_call_id",
    ),
    "user message without content": ({"role": "user"}, "content"),
    "content of a wrong type": ({"role": "user", "content": 5}, "content"),
    "part of a wrong type": ({"role": "user", "content": [1]}, "content"),
    "text part without text": (
        {"role": "user", "content": [{"type": "text"}]},
        "content",
    ),
    "unknown field": ({**GOOD, "colour": "red"}, "colour"),
    "calls by a user": (
        {**GOOD, "tool_calls": [{"id": "1", "name": "f"}]},
        "tool_calls",
    ),
    "call without a name": (
        {"role": "assistant", "tool_calls": [{"id": "1"}]},
        "tool_calls",
    ),
    "call in the wire shape": (
        {
            "role": "assistant",
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f"}}],
        },
        "tool_calls",
    ),
    "metadata of a wrong type": ({**GOOD, "metadata": 5}, "metadata"),
    "a number as message": (5, None),
    "null as message": (None, None),
    "a list as message": ([GOOD], None),
}


@pytest.mark.parametrize("name", BAD_MESSAGES)
def test_a_bad_message_is_named_and_its_batch_refused(api: Any, name: str) -> None:
    bad, field = BAD_MESSAGES[name]
    response = post(api, HERE, {"messages": [GOOD, bad, GOOD]})
    body = problem_of(response, 400, "invalid_message")
    assert body["index"] == 1
    assert body.get("field") == field
    assert "Message 1" in body["detail"]
    assert nothing_is_written()


BAD_LISTS: dict[str, tuple[Any, int, str]] = {
    "a text": ("hello", 400, "invalid_message"),
    "one message": (GOOD, 400, "invalid_message"),
    "null": (None, 400, "bad_input"),
    "a number": (3, 400, "invalid_message"),
    "an empty list": ([], 400, "empty_batch"),
    "a text over the limit": (
        [GOOD, {"role": "user", "content": "é" * 600}],
        413,
        "message_too_large",
    ),
}


@pytest.mark.parametrize("name", BAD_LISTS)
def test_what_is_no_list_of_messages_is_refused(
    api: Any, settings: Any, name: str
) -> None:
    settings.CONVMEM = {"MAX_MESSAGE_BYTES": 1000}
    sent, status, code = BAD_LISTS[name]
    problem_of(post(api, HERE, {"messages": sent}), status, code)
    assert nothing_is_written()


def test_a_number_that_becomes_infinite_is_refused(api: Any) -> None:
    said = b'{"messages": [{"role": "user", "content": "x", "metadata": {"n": 1e999}}]}'
    body = problem_of(post(api, HERE, said), 400, "invalid_message")
    assert (body["index"], body["field"]) == (0, "metadata")
    assert nothing_is_written()


def test_a_text_over_the_limit_says_how_much_is_allowed(
    api: Any, settings: Any
) -> None:
    settings.CONVMEM = {"MAX_MESSAGE_BYTES": 1000}
    body = problem_of(
        post(api, HERE, {"messages": [GOOD, {"role": "user", "content": "é" * 501}]}),
        413,
        "message_too_large",
    )
    assert (body["index"], body["field"]) == (1, "content")
    assert "1002" in body["detail"]
    assert "1000" in body["detail"]
    assert post(api, HERE, user_says("é" * 500)).status_code == 201


BAD_BODIES: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"hello", "parse_error"),
    "half a JSON": (b'{"messages": [', "parse_error"),
    "NaN": (b'{"messages": [{"role": "user", "metadata": {"x": NaN}}]}', "parse_error"),
    "Infinity": (b'{"messages": -Infinity}', "parse_error"),
    "no UTF-8": (b'{"messages": ["\xff\xfe"]}', "parse_error"),
    "a number with too many digits": (b"9" * 5000, "parse_error"),
    "deep for the rule": (nested(64), "json_too_deep"),
    "deep for the interpreter": (nested(100_000), "json_too_deep"),
    "a list": (b"[]", "bad_input"),
    "a text": (b'"messages"', "bad_input"),
    "null": (b"null", "bad_input"),
    "nothing": (b"", "bad_input"),
    "an empty object": (b"{}", "bad_input"),
}


@pytest.mark.parametrize("path", [HERE, RUNS])
@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_bad_body_is_refused(api: Any, path: str, name: str) -> None:
    data, code = BAD_BODIES[name]
    problem_of(post(api, path, data), 400, code)
    assert nothing_is_written()


def test_nesting_up_to_the_rule_is_stored_as_it_came(api: Any) -> None:
    deep: Any = "core"
    for _ in range(58):
        deep = [deep]
    said = {"messages": [{**GOOD, "metadata": {"deep": deep}}]}
    assert post(api, HERE, said).status_code == 201
    (message,) = api.get(HERE).json()["results"]
    assert message["metadata"] == {"deep": deep}


def test_integers_beyond_64_bits_are_stored_as_they_came(api: Any) -> None:
    said = {"messages": [{**GOOD, "metadata": {"big": 10**40}}]}
    assert post(api, HERE, said).status_code == 201
    (message,) = api.get(HERE).json()["results"]
    assert message["metadata"] == {"big": 10**40}


def test_an_unknown_field_is_refused_by_name(api: Any) -> None:
    said = {**user_says("hi"), "mesages": [], "b\ud800": 1}
    body = problem_of(post(api, HERE, said), 400, "bad_input")
    assert [(e["field"], e["code"]) for e in body["errors"]] == [
        ("mesages", "unknown_field"),
        ("b?", "unknown_field"),
    ]
    assert "mesages" in body["detail"]
    assert nothing_is_written()


def test_a_missing_field_is_named(api: Any) -> None:
    body = problem_of(post(api, HERE, {}), 400, "bad_input")
    assert body["errors"] == [
        {
            "field": "messages",
            "detail": "This field is required.",
            "code": "required",
        }
    ]


@pytest.mark.parametrize("path", [HERE, RUNS])
@pytest.mark.parametrize(
    "media_type",
    ["text/plain", "application/x-www-form-urlencoded", "application/xml", "nonsense"],
)
def test_other_media_types_are_refused(api: Any, path: str, media_type: str) -> None:
    data = json.dumps(user_says("hi"))
    response = api.generic("POST", path, data, content_type=media_type)
    body = problem_of(response, 415, "unsupported_media_type")
    assert media_type in body["detail"]
    assert nothing_is_written()


@pytest.mark.parametrize("charset", ["bz2_codec", "utf-16"])
def test_an_odd_charset_is_no_server_error(api: Any, charset: str) -> None:
    data = json.dumps(user_says("hi")).encode()
    response = api.generic(
        "POST", HERE, data, content_type=f"application/json; charset={charset}"
    )
    problem_of(response, 400, "parse_error")
    assert nothing_is_written()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", HERE),
        ("PATCH", HERE),
        ("POST", f"{API}conversations/"),
        ("DELETE", f"{API}conversations/talk/"),
        ("DELETE", RUNS),
    ],
)
def test_other_methods_are_refused(api: Any, method: str, path: str) -> None:
    response = api.generic(method, path, "{}", content_type="application/json")
    body = problem_of(response, 405, "method_not_allowed")
    assert method in body["detail"]
    assert method not in response["Allow"]


def test_a_body_over_djangos_limit_is_refused(api: Any, settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    response = post(api, HERE, user_says("x" * 1000))
    body = problem_of(response, 413, "request_too_large")
    assert "DATA_UPLOAD_MAX_MEMORY_SIZE" in body["detail"]
    assert nothing_is_written()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "type", "text", "tool_calls", "id", "x"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(body=JSON, inside=st.booleans())
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_no_json_makes_a_server_error(api: Any, body: Any, inside: bool) -> None:
    data = {"messages": body} if inside else body
    response = post(api, HERE, data)
    assert response.status_code < 500
    if response.status_code != 201:
        problem_of(response, response.status_code, response.json()["code"])


@given(body=JSON)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_no_content_makes_a_server_error(api: Any, body: Any) -> None:
    with override_agent("bot", Agent(FakeService(["Hello!"]), memory=None)):
        response = post(api, RUNS, {"agent_name": "bot", "content": body})
    assert response.status_code < 500
    if response.status_code != 201:
        problem_of(response, response.status_code, response.json()["code"])


@given(path=st.text(max_size=40))
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_no_address_makes_a_server_error(api: Any, path: str) -> None:
    written = quote(path.encode(errors="surrogatepass"), safe="/~")
    for address in (f"conversations/x{written}", f"runs/x{written.replace('/', '')}"):
        response = api.get(f"{API}{address}/")
        problem_of(response, response.status_code, response.json()["code"])
        assert response.status_code < 500


@pytest.mark.parametrize("size", ["0", "-1", "x", "1e3", "", "9" * 30])
def test_an_odd_page_size_is_no_error(api: Any, size: str) -> None:
    response = api.get(f"{API}conversations/", {"page_size": size})
    assert response.json()["results"] == []
