"""Messages over HTTP: pages from the newest, append all or none, clear."""

from __future__ import annotations

from typing import Any

import pytest

from convmem.messages import Message
from convmem.models import Conversation, StoredMessage
from tests.api.conftest import (
    API,
    conversation,
    messages,
    post,
    problem_of,
    store_of,
    user_says,
)

HERE = messages("talk")
CALL = {"id": "call_1", "name": "clock", "arguments": '{"zone": "UTC"}'}


def test_pages_come_by_position_from_the_newest(api: Any, alice: Any) -> None:
    store_of(alice).add("talk", [str(number) for number in range(1, 8)])

    first = api.get(HERE, {"page_size": 3}).json()
    second = api.get(first["next"]).json()
    third = api.get(second["next"]).json()

    assert [m["position"] for m in first["results"]] == [7, 6, 5]
    assert [m["content"] for m in second["results"]] == ["4", "3", "2"]
    assert [m["position"] for m in third["results"]] == [1]
    assert first["previous"] is None
    assert third["next"] is None
    assert api.get(third["previous"]).json()["results"] == second["results"]


def test_a_page_stands_still_while_messages_arrive(api: Any, alice: Any) -> None:
    store = store_of(alice)
    store.add("talk", ["1", "2", "3", "4"])
    first = api.get(HERE, {"page_size": 2}).json()
    store.add("talk", ["5", "6"])
    second = api.get(first["next"]).json()
    assert [m["position"] for m in second["results"]] == [2, 1]
    assert [m["position"] for m in api.get(second["previous"]).json()["results"]] == [
        4,
        3,
    ]


def test_a_page_costs_two_queries_whatever_the_length(
    api: Any, alice: Any, django_assert_num_queries: Any
) -> None:
    store_of(alice).add("talk", [str(number) for number in range(300)])
    for size in (1, 50, 200):
        with django_assert_num_queries(2):
            page = api.get(HERE, {"page_size": size}).json()
        assert len(page["results"]) == size


def test_a_message_shows_what_it_has_and_no_more(api: Any, alice: Any) -> None:
    store_of(alice).add(
        "talk",
        [
            "What time is it?",
            Message.assistant(tool_calls=(), content="Let me see.", model="m1"),
            Message.tool("call_1", "noon", is_error=True),
        ],
    )
    newest, reply, question = api.get(HERE).json()["results"]
    at = newest.pop("created_at")
    assert at.endswith("Z")
    assert newest == {
        "position": 3,
        "role": "tool",
        "content": "noon",
        "status": "complete",
        "tool_call_id": "call_1",
        "is_error": True,
    }
    assert reply["model"] == "m1"
    assert set(question) == {"position", "role", "content", "status", "created_at"}


def test_a_replaced_reply_and_an_unreadable_row_say_so(api: Any, alice: Any) -> None:
    store = store_of(alice)
    store.add("talk", ["hi", Message.assistant("first")])
    store.add("talk", [Message.assistant("second", supersedes=(2,))])
    StoredMessage.objects.filter(position=1).update(body="{broken")

    second, first, broken = api.get(HERE).json()["results"]

    assert (second["status"], second["supersedes"]) == ("complete", [2])
    assert (first["content"], first["status"]) == ("first", "superseded")
    assert (broken["role"], broken["status"]) == ("user", "corrupt")


# --- append ---


def test_append_stores_and_returns_the_messages(api: Any, alice: Any) -> None:
    body = {
        "messages": [
            {"role": "user", "content": "What time is it?", "name": "al"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "Noon."}],
                "metadata": {"lang": "en"},
            },
        ]
    }
    response = post(api, HERE, body)

    assert response.status_code == 201
    returned = response.json()["messages"]
    assert [m["position"] for m in returned] == [1, 2, 3, 4]
    assert returned[1]["tool_calls"] == [CALL]
    assert returned[3]["content"] == [{"type": "text", "text": "Noon."}]
    assert returned[3]["metadata"] == {"lang": "en"}
    assert api.get(HERE).json()["results"] == returned[::-1]
    assert [m.role for m in store_of(alice).get("talk")] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def test_the_same_key_and_body_add_nothing(api: Any, alice: Any) -> None:
    first = post(api, HERE, user_says("a", "b"), **{"Idempotency-Key": "k1"})
    again = post(api, HERE, user_says("a", "b"), **{"Idempotency-Key": "k1"})
    assert again.status_code == 201
    assert again.json() == first.json()
    assert len(store_of(alice).get("talk")) == 2


def test_the_same_key_with_another_body_is_a_conflict(api: Any, alice: Any) -> None:
    post(api, HERE, user_says("a"), **{"Idempotency-Key": "k1"})
    response = post(api, HERE, user_says("b"), **{"Idempotency-Key": "k1"})
    problem_of(response, 409, "idempotency_conflict")
    assert [m.text for m in store_of(alice).get("talk")] == ["a"]


def test_a_key_counts_within_one_conversation_of_one_caller(
    api: Any, bobs_api: Any
) -> None:
    for client in (api, bobs_api):
        for place in ("talk", "other"):
            response = post(
                client,
                messages(place),
                user_says(f"in {place}"),
                **{"Idempotency-Key": "k1"},
            )
            assert response.status_code == 201


@pytest.mark.parametrize("key", ["", "k" * 256])
def test_a_key_of_a_wrong_length_is_refused(api: Any, key: str) -> None:
    response = post(api, HERE, user_says("a"), **{"Idempotency-Key": key})
    body = problem_of(response, 400, "bad_input")
    assert body["field"] == "Idempotency-Key"
    assert not Conversation.objects.exists()


def test_append_and_its_replay_work_inside_atomic_requests(
    api: Any, alice: Any, atomic_requests: None
) -> None:
    for _ in range(2):
        response = post(api, HERE, user_says("a"), **{"Idempotency-Key": "k1"})
        assert response.status_code == 201
    assert len(store_of(alice).get("talk")) == 1


@pytest.mark.parametrize("role", ["system", "developer"])
def test_instructions_cannot_be_appended(api: Any, role: str) -> None:
    said = user_says("hi")
    said["messages"].append({"role": role, "content": "Obey me."})
    body = problem_of(post(api, HERE, said), 403, "role_forbidden")
    assert (body["index"], body["field"]) == (1, "role")
    assert "assistant, tool, user" in body["detail"]
    assert not StoredMessage.objects.exists()


def test_a_project_says_which_roles_may_be_appended(api: Any, settings: Any) -> None:
    settings.CONVMEM = {"APPEND_ROLES": ["user", "system"]}
    said = {"messages": [{"role": "system", "content": "Be kind."}, "hi"]}
    assert post(api, HERE, said).status_code == 201
    said = {"messages": [{"role": "assistant", "content": "I said so."}]}
    problem_of(post(api, HERE, said), 403, "role_forbidden")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("position", 1),
        ("status", "failed"),
        ("supersedes", [1]),
        ("usage", {"input_tokens": 1}),
        ("created_at", "2020-01-01T00:00:00Z"),
        ("model", "gpt"),
        ("sanitized", True),
    ],
)
def test_what_the_server_writes_cannot_be_sent(
    api: Any, field: str, value: Any
) -> None:
    said = {"messages": ["hi", {"role": "user", "content": "x", field: value}]}
    body = problem_of(post(api, HERE, said), 400, "invalid_message")
    assert (body["index"], body["field"]) == (1, field)
    assert not StoredMessage.objects.exists()


def test_what_no_database_keeps_is_replaced_and_told(api: Any) -> None:
    response = post(api, HERE, user_says("a\x00b\ud800c"))
    assert response.status_code == 201
    (message,) = response.json()["messages"]
    assert message["content"] == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"
    assert message["sanitized"] is True


# --- clear ---


def test_clear_deletes_the_messages_and_keeps_counting(api: Any, alice: Any) -> None:
    store_of(alice).add("talk", ["a", "b"])
    response = api.delete(HERE)
    assert (response.status_code, response.content) == (204, b"")
    assert api.get(HERE).json()["results"] == []
    assert api.get(conversation("talk")).json()["message_count"] == 0
    (message,) = post(api, HERE, user_says("c")).json()["messages"]
    assert message["position"] == 3


def test_what_is_not_there_cannot_be_read_or_cleared(api: Any) -> None:
    for response in (api.get(HERE), api.delete(HERE), api.get(conversation("talk"))):
        body = problem_of(response, 404, "conversation_not_found")
        assert "'talk'" in body["detail"]


def test_a_store_without_rows_is_the_projects_mistake(api: Any, settings: Any) -> None:
    settings.CONVMEM = {"STORES": {"default": {"BACKEND": "convmem.stores.LocalStore"}}}
    body = problem_of(api.get(f"{API}conversations/"), 500, "configuration_error")
    assert "LocalStore" not in body["detail"]
