"""The contract of every memory provider, as tests.

Subclass it in a pytest test module and say how to make a provider::

    class TestMyMemory(MemoryProviderContract):
        def make_provider(self):
            return MyMemory()

``make_provider`` is called once a test; conversations of different tests have
different ids, so one backend may serve them all. A provider that needs the database
gets it by ``pytestmark = pytest.mark.django_db(transaction=True)``.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence

import pytest
from asgiref.sync import async_to_sync

from convmem.exceptions import (
    EmptyBatch,
    InvalidConversationId,
    InvalidMessage,
    OwnerMismatch,
)
from convmem.memory.provider import MemoryProvider
from convmem.memory.validity import violations
from convmem.memory.view import View
from convmem.messages import Message, ToolCall
from convmem.owners import NOBODY, Owner

ANN = Owner(name="user", id="1")
BEN = Owner(name="user", id="2")


def _turn(number: int) -> list[Message]:
    return [Message.user(f"question {number}"), Message.assistant(f"answer {number}")]


def _tool_turn() -> list[Message]:
    calls = (
        ToolCall(id="a", name="clock", arguments="{}"),
        ToolCall(id="b", name="clock", arguments='{"zone": "UTC"}'),
    )
    return [
        Message.user("What time is it?"),
        Message.assistant(tool_calls=calls),
        Message.tool("b", "noon"),
        Message.tool("a", "ten"),
        Message.assistant("Ten here, noon there."),
    ]


def _bare(messages: Sequence[Message]) -> list[Message]:
    """Without what a store adds."""
    return [m.replace(position=None, created_at=None) for m in messages]


class MemoryProviderContract:
    """Tests of `MemoryProvider`; subclass it and write `make_provider`."""

    def make_provider(self) -> MemoryProvider:
        """Return the provider under test, bound to no owner."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _set_up(self) -> None:
        self.provider = self.make_provider()
        self.cid = f"contract-{uuid.uuid4()}"

    # --- visibility ---

    def test_an_unknown_conversation_is_empty(self) -> None:
        assert list(self.provider.history(self.cid)) == []
        assert self.provider.clear(self.cid) == 0

    def test_what_was_appended_is_seen_by_the_next_history(self) -> None:
        for number in range(3):
            self.provider.append(self.cid, _turn(number))
            seen = [m.text for m in self.provider.history(self.cid)]
            assert seen[-2:] == [f"question {number}", f"answer {number}"]

    def test_what_was_appended_is_seen_in_async_code(self) -> None:
        async def talk() -> list[str]:
            for number in range(3):
                await self.provider.aappend(self.cid, _turn(number))
            return [m.text for m in await self.provider.ahistory(self.cid)]

        assert async_to_sync(talk)()[-2:] == ["question 2", "answer 2"]

    def test_append_returns_the_batch_as_stored(self) -> None:
        stored = self.provider.append(self.cid, _turn(1))
        assert _bare(stored) == _turn(1)

    def test_all_roles_and_tool_calls_are_kept(self) -> None:
        self.provider.append(self.cid, _tool_turn())
        assert _bare(self.provider.history(self.cid)) == _tool_turn()

    def test_order_is_the_order_of_appending(self) -> None:
        for number in range(5):
            self.provider.append(self.cid, _turn(number))
        seen = [m.text for m in self.provider.history(self.cid)]
        texts = [m.text for m in itertools.chain(*map(_turn, range(5)))]
        assert seen == texts[len(texts) - len(seen) :]
        assert seen

    def test_conversations_are_apart(self) -> None:
        self.provider.append(self.cid, _turn(1))
        assert list(self.provider.history(self.cid + "x")) == []

    # --- prepare and plan ---

    def test_prepare_shows_the_open_turn_whole(self) -> None:
        self.provider.append(self.cid, _turn(1))
        messages = [*self.provider.history(self.cid), *_tool_turn()[:-1]]
        assert self.provider.prepare(self.cid, messages)[-4:] == _tool_turn()[:-1]

    def test_prepare_is_valid_for_a_provider(self) -> None:
        self.provider.append(self.cid, [*_turn(1), *_tool_turn()])
        messages = [*self.provider.history(self.cid), Message.user("And now?")]
        view = self.provider.prepare(self.cid, messages)
        assert violations(view) == []
        assert view[-1] == Message.user("And now?")

    def test_prepare_is_idempotent(self) -> None:
        self.provider.append(self.cid, [*_turn(1), *_tool_turn()])
        once = self.provider.prepare(self.cid, self.provider.history(self.cid))
        assert self.provider.prepare(self.cid, once) == once

    def test_prepare_of_nothing_is_no_error(self) -> None:
        assert isinstance(self.provider.prepare(self.cid, []), list)

    def test_prepare_changes_nothing_stored(self) -> None:
        self.provider.append(self.cid, [*_turn(1), *_tool_turn()])
        before = list(self.provider.history(self.cid))
        self.provider.prepare(self.cid, before)
        assert list(self.provider.history(self.cid)) == before

    def test_plan_shows_what_prepare_shows(self) -> None:
        self.provider.append(self.cid, [*_turn(1), *_tool_turn()])
        messages = [*self.provider.history(self.cid), Message.user("And now?")]
        view = self.provider.plan(self.cid, messages, open_from=len(messages) - 1)
        assert isinstance(view, View)
        assert list(view.messages) == self.provider.prepare(self.cid, messages)
        assert view.tokens.open_turn > 0
        for dropped in view.dropped:
            assert dropped.message == messages[dropped.index]
            assert dropped.message not in view.messages

    def test_the_twins_agree(self) -> None:
        self.provider.append(self.cid, _tool_turn())

        async def look() -> tuple[list[Message], list[Message], View]:
            history = await self.provider.ahistory(self.cid)
            view = await self.provider.aplan(self.cid, history)
            shown = await self.provider.aprepare(self.cid, history)
            return list(history), shown, view

        history, shown, view = async_to_sync(look)()
        assert history == list(self.provider.history(self.cid))
        assert shown == self.provider.prepare(self.cid, history)
        assert view == self.provider.plan(self.cid, history)

    # --- append ---

    def test_a_repeated_key_stores_once(self) -> None:
        if not self.provider.supports_idempotency:
            pytest.skip("the provider does not support idempotency keys")
        self.provider.append(self.cid, _turn(1), key="k")
        again = self.provider.append(self.cid, _turn(1), key="k")
        assert _bare(again) == _turn(1)
        assert len(self.provider.history(self.cid)) == 2

    def test_nothing_to_append_is_refused(self) -> None:
        with pytest.raises(EmptyBatch):
            self.provider.append(self.cid, [])

    def test_a_bad_message_stores_nothing_of_its_batch(self) -> None:
        with pytest.raises(InvalidMessage) as caught:
            self.provider.append(self.cid, ["fine", {"role": "robot", "content": "x"}])
        assert caught.value.details["index"] == 1
        assert caught.value.details["field"] == "role"
        assert list(self.provider.history(self.cid)) == []

    def test_a_bad_conversation_id_is_refused(self) -> None:
        with pytest.raises(InvalidConversationId):
            self.provider.append("x" * 256, _turn(1))
        with pytest.raises(InvalidConversationId):
            self.provider.history("")

    # --- clear ---

    def test_clear_forgets_one_conversation_and_says_how_much(self) -> None:
        other = self.cid + "-other"
        self.provider.append(self.cid, _turn(1))
        self.provider.append(other, _turn(2))
        assert self.provider.clear(self.cid) == 2
        assert list(self.provider.history(self.cid)) == []
        assert len(self.provider.history(other)) == 2
        self.provider.clear(other)

    def test_clear_in_async_code(self) -> None:
        self.provider.append(self.cid, _turn(1))
        assert async_to_sync(self.provider.aclear)(self.cid) == 2
        assert list(self.provider.history(self.cid)) == []

    # --- owners ---

    def test_owners_are_apart_or_refused(self) -> None:
        if not self.provider.supports_owners:
            with pytest.raises(OwnerMismatch):
                self.provider.for_owner(ANN)
            return
        ann, ben = self.provider.for_owner(ANN), self.provider.for_owner(BEN)
        ann.append(self.cid, _turn(1))
        ben.append(self.cid, _turn(2))
        assert [m.text for m in ann.history(self.cid)] == ["question 1", "answer 1"]
        assert [m.text for m in ben.history(self.cid)] == ["question 2", "answer 2"]
        assert list(self.provider.history(self.cid)) == []

    def test_a_bound_provider_refuses_another_owner(self) -> None:
        assert self.provider.for_owner(None) is self.provider
        assert self.provider.for_owner(NOBODY) is self.provider
        if not self.provider.supports_owners:
            return
        ann = self.provider.for_owner(ANN)
        assert ann.for_owner(ANN) is ann
        with pytest.raises(OwnerMismatch):
            ann.for_owner(BEN)
