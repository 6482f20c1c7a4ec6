"""Demo data: varied, stored once, left alone once it is there."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.contrib.auth import get_user_model

from convmem.handlers import stores
from convmem.messages import ReasoningPart, RefusalPart
from convmem.owners import NOBODY
from convmem.validation import check_batch
from project.seeds import (
    LONG_ID,
    conversations,
    long_conversation,
    owner_of_login,
    seed,
)

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


def stored(login: str, conversation_id: str):
    return stores["default"].for_owner(owner_of_login(login)).get(conversation_id)


def test_a_dozen_and_a_long_one():
    assert seed(NOW) == 13
    assert len(stored("admin", LONG_ID)) == 301
    assert seed(NOW) == 0
    assert len(stored("admin", LONG_ID)) == 301


def test_what_a_visitor_added_stays():
    seed(NOW)
    store = stores["default"].for_owner(owner_of_login("admin"))
    store.add("welcome", ["What is my name?"])
    seed(NOW)
    assert [message.text for message in store.get("welcome")][-1] == "What is my name?"


def test_the_shapes_that_a_reader_should_see():
    listed = list(conversations())
    messages = [m for c in listed for m in check_batch(c["messages"])]
    parts = [part for message in messages for part in message.parts]
    kinds = {type(part) for part in parts}
    assert {message.role for message in messages} == {
        "system",
        "developer",
        "user",
        "assistant",
        "tool",
    }
    assert {"incomplete", "failed"} <= {message.status for message in messages}
    assert {ReasoningPart, RefusalPart} <= kinds
    assert any(message.is_error for message in messages)
    assert any(len(message.tool_calls) > 1 for message in messages)
    assert any("<script>" in message.text for message in messages)
    assert {c["owner"] for c in listed} == {"admin", "sam", "nobody"}


def test_stored_as_written_and_dated():
    seed(NOW)
    messages = stored("sam", "corrected-answer")
    by_position = {message.position: message for message in messages}
    correction = next(message for message in messages if message.supersedes)
    assert by_position[correction.supersedes[0]].text == "The Mondego."
    dates = [message.created_at for message in messages]
    assert dates == sorted(dates)
    assert dates[-1] < NOW
    assert (NOW - dates[0]).days == 12


def test_positions_that_begin_later_are_superseded_rightly():
    store = stores["default"].for_owner(owner_of_login("sam"))
    store.add("corrected-answer", ["a", "b", "c"])
    store.clear("corrected-answer")
    seed(NOW)
    messages = stored("sam", "corrected-answer")
    correction = next(message for message in messages if message.supersedes)
    (position,) = correction.supersedes
    assert next(m for m in messages if m.position == position).text == "The Mondego."


def test_sums_are_right():
    answers = [m["content"] for m in long_conversation(2) if m["role"] == "tool"]
    assert answers == ["7 * (1 + 3) = 28", "14 * (2 + 4) = 84"]


def test_owners():
    assert owner_of_login("nobody") == NOBODY
    owner = owner_of_login("ada")
    user = get_user_model().objects.get(username="ada")
    assert (owner.name, owner.id) == ("user", str(user.pk))
    assert not user.has_usable_password()
    assert owner_of_login("ada") == owner
