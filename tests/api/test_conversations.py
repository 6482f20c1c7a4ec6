"""Listing and reading conversations: one's own, in order, at constant cost."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from convmem.models import Conversation
from convmem.owners import Owner
from tests.api.conftest import (
    API,
    conversation,
    messages,
    post,
    problem_of,
    store_of,
    user_says,
)

LIST = f"{API}conversations/"


def ids(page: dict[str, Any]) -> list[str]:
    return [item["conversation_id"] for item in page["results"]]


def pages(api: Any, url: str | None) -> list[dict[str, Any]]:
    found = []
    while url:
        found.append(api.get(url).json())
        url = found[-1]["next"]
    return found


def test_a_conversation_shows_its_counts_and_times(api: Any, alice: Any) -> None:
    store_of(alice).add("trip", ["one", "two"])
    store_of(alice).add("trip", ["three"])

    shown = api.get(conversation("trip")).json()

    row = Conversation.objects.get()
    assert shown == {
        "conversation_id": "trip",
        "message_count": 3,
        "created_at": row.created_at.isoformat().replace("+00:00", "Z"),
        "last_message_at": row.last_message_at.isoformat().replace("+00:00", "Z"),
        "url": "http://testserver/api/v1/conversations/trip/",
        "messages_url": "http://testserver/api/v1/conversations/trip/messages/",
    }


def test_the_list_has_the_newest_activity_first(api: Any, alice: Any) -> None:
    store = store_of(alice)
    for conversation_id in ["a", "b", "c"]:
        store.add(conversation_id, ["hi"])
    store.add("a", ["again"])
    assert ids(api.get(LIST).json()) == ["a", "c", "b"]


def test_pages_hold_each_conversation_once(api: Any, alice: Any) -> None:
    store = store_of(alice)
    for number in range(7):
        store.add(f"c{number}", ["hi"])
    # Equal times: the cursor must not skip or repeat within them.
    Conversation.objects.update(last_message_at=datetime(2026, 1, 1, tzinfo=UTC))

    found = pages(api, f"{LIST}?page_size=2")

    assert [len(page["results"]) for page in found] == [2, 2, 2, 1]
    assert sorted(i for page in found for i in ids(page)) == [f"c{n}" for n in range(7)]
    assert ids(api.get(found[1]["previous"]).json()) == ids(found[0])


def test_the_list_costs_one_query_whatever_its_length(
    api: Any, alice: Any, django_assert_num_queries: Any
) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    store_of(alice).add("first", ["hi"])
    namespace = Conversation.objects.get().namespace
    Conversation.objects.bulk_create(
        Conversation(
            key=f"{number:064}",
            namespace=namespace,
            owner_name="user",
            owner_id=str(alice.pk),
            conversation_id=f"c{number}",
            created_at=start,
            last_message_at=start + timedelta(seconds=number),
        )
        for number in range(120)
    )
    for url in (LIST, f"{LIST}?page_size=200", f"{LIST}?page_size=1"):
        with django_assert_num_queries(1):
            api.get(url)
    assert len(api.get(LIST).json()["results"]) == 50
    assert len(api.get(f"{LIST}?page_size=9999").json()["results"]) == 121


def test_reading_one_costs_one_query(
    api: Any, alice: Any, django_assert_num_queries: Any
) -> None:
    store_of(alice).add("trip", ["one"])
    with django_assert_num_queries(1):
        api.get(conversation("trip"))


def test_each_caller_sees_only_their_own(
    api: Any, alice: Any, bobs_api: Any, bob: Any
) -> None:
    store_of(alice).add("shared name", ["of alice"])
    store_of(bob).add("shared name", ["of bob"])
    store_of(bob).add("other", ["of bob"])

    assert ids(api.get(LIST).json()) == ["shared name"]
    assert ids(bobs_api.get(LIST).json()) == ["other", "shared name"]
    (message,) = api.get(messages("shared name")).json()["results"]
    assert message["content"] == "of alice"


def test_ids_and_owners_are_exact(settings: Any, api: Any) -> None:
    """Collations of some databases take these for equal."""
    for owner_id in ["org", "Org", "org "]:
        owner = Owner(name="org", id=owner_id)
        settings.CONVMEM = {"OWNER": lambda request, owner=owner: owner}
        for conversation_id in ["t", "T", "t "]:
            text = f"{owner_id}/{conversation_id}"
            post(api, messages(conversation_id), user_says(text))

    settings.CONVMEM = {"OWNER": lambda request: Owner(name="org", id="Org")}
    assert ids(api.get(LIST).json()) == ["t ", "T", "t"]
    (message,) = api.get(messages("T")).json()["results"]
    assert message["content"] == "Org/T"


@pytest.mark.parametrize("path", [conversation("diary"), messages("diary")])
def test_somebody_elses_id_answers_as_one_that_nobody_has(
    bobs_api: Any, alice: Any, path: str
) -> None:
    nobodys = bobs_api.get(path)
    store_of(alice).add("diary", ["secret"])
    alices = bobs_api.get(path)

    problem_of(alices, 404, "conversation_not_found")
    assert alices.content == nobodys.content
    assert alices.headers == nobodys.headers


def test_somebody_elses_conversation_cannot_be_cleared(
    bobs_api: Any, alice: Any
) -> None:
    nobodys = bobs_api.delete(messages("diary"))
    store_of(alice).add("diary", ["secret"])
    alices = bobs_api.delete(messages("diary"))

    problem_of(alices, 404, "conversation_not_found")
    assert alices.content == nobodys.content
    assert len(store_of(alice).get("diary")) == 1


@pytest.mark.parametrize(
    "cursor",
    [
        "p=nonsense",
        "p=nonsense&p=1",
        "p=2026-01-01T00:00:00&p=1",  # no time zone
        "p=0001-01-01T00:00:00%2B23:59&p=1",  # no such time in UTC
        "p=2026-01-01T00:00:00Z&p=x",
        "p=2026-01-01T00:00:00Z",
        "p=1&p=1",
        "p=%00",
        "r=1",
        "",
    ],
)
def test_a_cursor_that_was_tampered_with_is_no_server_error(
    api: Any, alice: Any, cursor: str
) -> None:
    store_of(alice).add("c", ["hi"])
    query = {"cursor": base64.urlsafe_b64encode(cursor.encode()).decode()}
    for path in (LIST, messages("c")):
        problem_of(api.get(path, query), 404, "not_found")


@pytest.mark.parametrize("cursor", ["zzz", "*", "🎈", "\x00"])
def test_a_cursor_that_is_none_is_no_server_error(api: Any, cursor: str) -> None:
    problem_of(api.get(LIST, {"cursor": cursor}), 404, "not_found")


def test_a_cursor_beyond_all_numbers_finds_nothing_wrong(api: Any, alice: Any) -> None:
    store_of(alice).add("c", ["hi"])
    for position, found in [("9" * 30, 1), ("-" + "9" * 30, 0)]:
        cursor = base64.urlsafe_b64encode(f"p={position}".encode()).decode()
        page = api.get(messages("c"), {"cursor": cursor}).json()
        assert len(page["results"]) == found
