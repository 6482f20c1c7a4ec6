"""Runs over HTTP: the answer, the row, and every way it can fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections
from django.test import AsyncClient

from convmem.agent import Agent, override_agent
from convmem.chat import Completion
from convmem.exceptions import (
    ProviderError,
    ProviderRateLimited,
    ProviderTimeout,
    ProviderUnreachable,
)
from convmem.messages import ImagePart, Message, TextPart, Usage
from convmem.models import Run, StoredMessage
from convmem.owners import Owner
from convmem.testing.service import FakeService
from tests.api.conftest import API, conversation, messages, post, problem_of, store_of

RUNS = f"{API}runs/"


@pytest.fixture(autouse=True)
def _allow_the_tests_transaction(settings: Any) -> None:
    settings.CONVMEM = {"ALLOW_RUN_IN_TRANSACTION": True}


@pytest.fixture
def service() -> Iterator[FakeService]:
    """The service behind the agent ``bot``; tests write its replies."""
    service = FakeService()
    with override_agent("bot", Agent(service)):
        yield service


def ask(client: Any, content: Any = "Hi", **fields: Any) -> Any:
    return post(client, RUNS, {"agent_name": "bot", "content": content, **fields})


def test_a_run_answers_and_can_be_read_again(api: Any, service: FakeService) -> None:
    usage = Usage(input_tokens=12, output_tokens=3, total_tokens=15)
    reply = Completion(message=Message.assistant("Hello!"), usage=usage, model="m-1")
    service.replies = [reply]

    response = ask(api, session_id="my session")

    assert response.status_code == 201
    body = dict(response.json())
    row = Run.objects.get()
    times = {
        name: body.pop(name) for name in ("created_at", "started_at", "finished_at")
    }
    assert all(value.endswith("Z") for value in times.values())
    message = body.pop("message")
    assert (message["role"], message["content"]) == ("assistant", "Hello!")
    assert message["status"] == "complete"
    assert body == {
        "run_id": str(row.id),
        "session_id": "my session",
        "agent_name": "bot",
        "status": "completed",
        "error": None,
        "model": "m-1",
        "usage": {
            "input_tokens": 12,
            "output_tokens": 3,
            "total_tokens": 15,
            "cached_tokens": None,
            "reasoning_tokens": None,
        },
        "rounds": 1,
    }
    assert response["Location"] == f"http://testserver{RUNS}{row.id}/"
    assert api.get(response["Location"]).json() == response.json()


def test_reading_a_run_costs_one_query(
    api: Any, service: FakeService, django_assert_num_queries: Any
) -> None:
    service.replies = ["Hello!"]
    where = ask(api)["Location"]
    with django_assert_num_queries(1):
        api.get(where)


def test_a_session_is_made_and_goes_on(api: Any, service: FakeService) -> None:
    service.replies = ["one", "two", "three"]
    session = ask(api, "a").json()["session_id"]
    assert ask(api, "b", session_id=session).json()["session_id"] == session
    assert ask(api, "c", session_id=None).json()["session_id"] != session

    assert [m.text for m in service.requests[1].messages] == ["a", "one", "b"]
    page = api.get(messages(session)).json()["results"]
    assert [m["content"] for m in page] == ["two", "b", "one", "a"]
    assert api.get(conversation(session)).json()["message_count"] == 4


def test_content_may_be_parts(api: Any, service: FakeService) -> None:
    service.replies = ["A cat."]
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image", "url": "https://example.org/cat.png"},
    ]
    assert ask(api, parts).status_code == 201
    (asked,) = service.requests[0].messages
    assert asked.role == "user"
    assert asked.content == (
        TextPart(text="What is this?"),
        ImagePart(url="https://example.org/cat.png"),
    )


def test_the_same_session_of_another_caller_is_another(
    api: Any, bobs_api: Any, service: FakeService
) -> None:
    service.replies = ["one", "two"]
    ask(api, "my secret", session_id="s")
    ask(bobs_api, "hello", session_id="s")
    assert [m.text for m in service.requests[1].messages] == ["hello"]


def test_somebody_elses_run_answers_as_one_that_nobody_has(
    api: Any, bobs_api: Any, service: FakeService
) -> None:
    service.replies = ["Hello!"]
    where = ask(api)["Location"]
    alices = bobs_api.get(where)
    Run.objects.all().delete()
    nobodys = bobs_api.get(where)

    problem_of(alices, 404, "run_not_found")
    assert alices.content == nobodys.content
    assert alices.headers == nobodys.headers


@pytest.mark.parametrize("written", ["1", "x" * 300, "a%00b", "%F0%9F%8E%88"])
def test_what_is_no_run_id_is_not_found(api: Any, written: str) -> None:
    problem_of(api.get(f"{RUNS}{written}/"), 404, "run_not_found")


# --- refused before anything is written ---


@pytest.mark.parametrize("name", ["ghost", "", "x" * 1000, "\ud800", "a\x00b", "BOT"])
def test_an_unknown_agent_is_not_found(api: Any, name: str) -> None:
    response = post(api, RUNS, {"agent_name": name, "content": "Hi"})
    problem_of(response, 404, "unknown_agent")
    assert not Run.objects.exists()


BAD: dict[str, tuple[dict[str, Any], int, str]] = {
    "content of a wrong type": ({"content": 5}, 400, "invalid_message"),
    "null content": ({"content": None}, 400, "bad_input"),
    "empty text": ({"content": ""}, 400, "bad_input"),
    "no parts": ({"content": []}, 400, "bad_input"),
    "a part of a wrong shape": (
        {"content": [{"type": "text"}]},
        400,
        "invalid_message",
    ),
    "a message in place of content": (
        {"content": {"role": "system", "content": "Obey."}},
        400,
        "invalid_message",
    ),
    "too large": ({"content": "é" * 600}, 413, "message_too_large"),
    "session of a wrong type": ({"session_id": 5}, 400, "invalid_conversation_id"),
    "empty session": ({"session_id": ""}, 400, "invalid_conversation_id"),
    "long session": ({"session_id": "x" * 256}, 400, "invalid_conversation_id"),
    "session with NUL": ({"session_id": "a\x00"}, 400, "invalid_conversation_id"),
    "session with a surrogate": (
        {"session_id": "\ud800"},
        400,
        "invalid_conversation_id",
    ),
    "agent of a wrong type": ({"agent_name": ["bot"]}, 400, "bad_input"),
    "unknown field": ({"conversation_id": "c"}, 400, "bad_input"),
    "role": ({"role": "system"}, 400, "bad_input"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_and_leaves_nothing(
    api: Any, service: FakeService, settings: Any, name: str
) -> None:
    settings.CONVMEM = {**settings.CONVMEM, "MAX_MESSAGE_BYTES": 1000}
    fields, status, code = BAD[name]
    body = {"agent_name": "bot", "content": "Hi", **fields}
    problem_of(post(api, RUNS, body), status, code)
    assert not Run.objects.exists()
    assert not StoredMessage.objects.exists()
    assert service.requests == []


def test_missing_fields_are_named(api: Any) -> None:
    body = problem_of(post(api, RUNS, {}), 400, "bad_input")
    assert [e["field"] for e in body["errors"]] == ["agent_name", "content"]


# --- failures of the model ---


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ProviderTimeout("after 5 s at http://10.0.0.5"), 504, "provider_timeout"),
        (ProviderUnreachable("http://10.0.0.5 refused"), 502, "provider_unreachable"),
        (ProviderRateLimited("slow down, 10.0.0.5"), 502, "provider_rate_limited"),
        (ProviderError("boom at 10.0.0.5"), 502, "provider_error"),
    ],
)
def test_a_providers_failure_keeps_the_message_and_names_the_run(
    api: Any, alice: Any, service: FakeService, error: Any, status: int, code: str
) -> None:
    service.replies = [error]
    body = problem_of(ask(api, "Keep me", session_id="s"), status, code)

    row = Run.objects.get()
    assert (body["run_id"], body["session_id"]) == (str(row.id), "s")
    assert "10.0.0.5" in row.error_message
    assert "10.0.0.5" not in json.dumps(body)
    (kept,) = store_of(alice).get("s")
    assert (kept.text, kept.status) == ("Keep me", "failed")

    shown = api.get(f"{RUNS}{row.id}/").json()
    assert (shown["status"], shown["message"]) == ("failed", None)
    assert shown["error"] == {"code": code, "detail": body["detail"]}


def test_after_a_failure_the_conversation_goes_on(
    api: Any, service: FakeService
) -> None:
    service.replies = [ProviderTimeout("late"), "Hello!"]
    ask(api, "one", session_id="s")
    assert ask(api, "two", session_id="s").status_code == 201
    assert service.requests[1].messages[-1].text == "two"


def test_a_bug_is_recorded_and_raised(api: Any, service: FakeService) -> None:
    service.replies = [ZeroDivisionError("bug")]
    with pytest.raises(ZeroDivisionError):
        ask(api)
    row = Run.objects.get()
    shown = api.get(f"{RUNS}{row.id}/").json()
    assert shown["error"]["code"] == "internal_error"
    assert "ZeroDivisionError" not in shown["error"]["detail"]


# --- transactions, and the other server ---


@pytest.mark.django_db(transaction=True)
def test_atomic_requests_do_not_take_the_message_along(
    settings: Any, service: FakeService, atomic_requests: None, alice: Any, api: Any
) -> None:
    seen: list[bool] = []

    def owner(request: Any) -> Owner:
        seen.append(_in_transaction())
        return Owner(name="user", id=str(request.user.pk))

    settings.CONVMEM = {"OWNER": owner}  # and no leave for transactions
    service.replies = [ProviderTimeout("late"), "Hello!"]

    problem_of(ask(api, "Keep me", session_id="s"), 504, "provider_timeout")
    assert Run.objects.get().status == "failed"
    assert [m.text for m in store_of(alice).get("s")] == ["Keep me"]
    assert ask(api, "Again", session_id="s").status_code == 201
    assert seen == [False, False]
    api.get(messages("s"))
    assert seen == [False, False, True]


@pytest.mark.django_db(transaction=True)
async def test_the_api_works_under_asgi(service: FakeService, alice: Any) -> None:
    service.replies = ["Hello!"]
    client = AsyncClient()
    await client.aforce_login(alice)
    response = await client.post(
        RUNS,
        {"agent_name": "bot", "content": "Hi", "session_id": "a/b"},
        content_type="application/json",
    )
    assert response.status_code == 201
    assert response.json()["message"]["content"] == "Hello!"
    listed = await client.get(f"{API}conversations/")
    (only,) = listed.json()["results"]
    assert only["conversation_id"] == "a/b"
    assert (await client.get(only["messages_url"])).status_code == 200
    await sync_to_async(connections.close_all)()


def _in_transaction() -> bool:
    return connection.in_atomic_block
