"""What was added is read, exactly, by whom it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from convmem.exceptions import (
    BadInput,
    InvalidConversationId,
    InvalidOwner,
    InvalidWindow,
    OwnerMismatch,
)
from convmem.messages import Message, OpaquePart, TextPart
from convmem.owners import Owner
from convmem.stores import ChatMemory, Totals
from convmem.testing.storecontract.faces import StoreFixtures
from convmem.testing.storecontract.samples import (
    ANN,
    BAD_BATCHES,
    BOB,
    MESSAGES,
)


class BasicsContract(StoreFixtures):
    """Reading what was added, and refusing what is wrong."""

    # --- reading what was added ---

    def test_an_unknown_conversation_is_empty(self, store: Any) -> None:
        assert store.get("t") == []
        assert store.newest("t", 5) == []
        assert store.system_messages("t") == []
        assert store.totals("t") == Totals()
        assert store.window("t", 5).messages == ()
        assert store.window("t", 5).totals == Totals()
        assert list(store.chunks("t")) == []
        assert store.clear("t") == 0
        assert store.erase("t") == 0

    def test_add_returns_what_get_reads(self, store: Any) -> None:
        before = datetime.now(UTC)
        added = store.add("t", ["hello", Message.assistant("hi")])
        assert added == store.get("t")
        assert [(m.role, m.content) for m in added] == [
            ("user", "hello"),
            ("assistant", "hi"),
        ]
        assert [m.position for m in added] == [1, 2]
        assert all(before <= m.created_at <= datetime.now(UTC) for m in added)
        assert {m.created_at.utcoffset() for m in added} == {timedelta(0)}

    @pytest.mark.parametrize("message", MESSAGES, ids=lambda m: m.role)
    def test_a_message_comes_back_whole(self, store: Any, message: Message) -> None:
        store.add("t", [message])
        (found,) = store.get("t")
        assert found == message.replace(created_at=found.created_at, position=1)

    def test_every_role_is_kept_in_order(self, store: Any) -> None:
        store.add("t", MESSAGES[:3])
        store.add("t", MESSAGES[3:])
        found = store.get("t")
        assert [m.position for m in found] == list(range(1, len(MESSAGES) + 1))
        assert [(m.role, m.content) for m in found] == [
            (m.role, m.content) for m in MESSAGES
        ]

    def test_strings_dicts_and_messages_are_taken(self, store: Any) -> None:
        store.add(
            "t",
            (
                "one",
                {"role": "user", "content": ["two", {"type": "odd", "n": 1}]},
                Message.user("three", position=99),
            ),
        )
        one, two, three = store.get("t")
        assert one == Message.user("one", created_at=one.created_at, position=1)
        assert two.content == (
            TextPart(text="two"),
            OpaquePart(data={"type": "odd", "n": 1}),
        )
        assert three.position == 3

    def test_text_that_cannot_be_stored_is_replaced_and_said(self, store: Any) -> None:
        added = store.add("t", [Message.user("a\x00b"), Message.user("c\ud800d"), "e"])
        assert [(m.content, m.sanitized) for m in added] == [
            ("a\ufffdb", True),
            ("c\ufffdd", True),
            ("e", False),
        ]
        assert store.get("t") == added

    def test_a_batch_of_many_messages_is_whole(self, store: Any) -> None:
        texts = [f"message {number}" for number in range(1203)]
        added = store.add("t", texts)
        assert [m.content for m in store.get("t")] == texts
        assert [m.position for m in added] == list(range(1, 1204))
        assert [m.content for m in store.newest("t", 2)] == texts[-2:]

    def test_times_that_messages_bring_are_kept(self, store: Any) -> None:
        east = timezone(timedelta(hours=5, minutes=30))
        at = datetime(2019, 5, 4, 3, 2, 1, 123456, tzinfo=east)
        store.add("t", [Message.user("old", created_at=at), "new"])
        old, new = store.get("t")
        assert old.created_at == at
        assert new.created_at > at
        assert store.get("t")[0].created_at == at

    def test_order_does_not_need_a_clock(self, store: Any) -> None:
        at = datetime(2024, 2, 29, tzinfo=UTC)
        for number in range(25):
            store.add("t", [Message.user(f"{number}", created_at=at)])
        store.add("t", [Message.user("25", created_at=at - timedelta(days=1))])
        assert [m.content for m in store.get("t")] == [f"{n}" for n in range(26)]

    def test_what_a_caller_changes_later_changes_nothing(self, store: Any) -> None:
        given = {"role": "user", "content": "x", "metadata": {"tags": ["a"]}}
        added = store.add("t", [given])
        given["metadata"]["tags"].append("b")  # type: ignore[index]
        added[0].metadata["tags"].append("c")
        store.get("t")[0].metadata["tags"].append("d")
        assert store.get("t")[0].metadata == {"tags": ["a"]}

    def test_a_superseding_reply_says_which_it_replaces(self, store: Any) -> None:
        store.add("t", ["q", Message.assistant("first")])
        store.add("t", [Message.assistant("second", supersedes=(2,))])
        assert [m.content for m in store.get("t")] == ["q", "first", "second"]
        assert store.get("t")[2].supersedes == (2,)

    # --- what is refused ---

    @pytest.mark.parametrize("case", BAD_BATCHES)
    def test_a_bad_batch_is_refused_whole(self, store: Any, case: str) -> None:
        batch, error = BAD_BATCHES[case]
        if isinstance(batch, list) and batch:
            batch = ["good", *batch]
        with pytest.raises(error) as caught:
            store.add("t", batch)
        assert issubclass(error, BadInput)
        if isinstance(batch, list) and batch:
            assert caught.value.details["index"] == 1
            assert "1" in caught.value.message
        assert store.get("t") == []
        assert store.add("t", ["next"])[0].position == 1

    @pytest.mark.parametrize("bad", ["", "x" * 256, None, 7, b"t", "a\x00", "\ud800"])
    def test_a_bad_id_is_refused(self, store: Any, bad: Any) -> None:
        calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
            (store.get, ()),
            (store.add, (["x"],)),
            (store.clear, ()),
            (store.newest, (1,)),
            (store.window, (1,)),
            (store.totals, ()),
        ]
        for call, more in calls:
            with pytest.raises(InvalidConversationId):
                call(bad, *more)

    @pytest.mark.parametrize("bad", [-1, 1.5, "3", None, True])
    def test_a_bad_limit_is_refused(self, store: Any, bad: Any) -> None:
        store.add("t", ["x"])
        with pytest.raises(InvalidWindow):
            store.newest("t", bad)
        with pytest.raises(InvalidWindow):
            store.window("t", bad)

    # --- whose, and which ---

    def test_ids_are_exact(self, store: Any) -> None:
        ids = ["t", "T", "t ", " t", "é", "e\u0301", "ß", "ss", "t%", "t_", "x" * 255]
        ids += ["👩" * 255, "x" * 254, "t\n", "1", "１"]
        for number, conversation in enumerate(ids):
            store.add(conversation, [f"{number}"])
        assert [store.get(conversation)[0].content for conversation in ids] == [
            f"{number}" for number in range(len(ids))
        ]
        assert all(store.totals(conversation).count == 1 for conversation in ids)
        store.clear("t")
        assert [len(store.get(c)) for c in ids] == [0] + [1] * (len(ids) - 1)

    def test_owners_do_not_see_each_other(self, store: Any) -> None:
        owners = [
            None,
            ANN,
            BOB,
            Owner(name="User", id="1"),
            Owner(name="user", id="1 "),
        ]
        owners += [Owner(name="use", id="r1"), Owner(name="user1", id="1")]
        handles = [store.for_owner(owner) for owner in owners]
        for number, handle in enumerate(handles):
            handle.add("t", [f"{number}"])
        assert [handle.get("t")[0].content for handle in handles] == [
            f"{number}" for number in range(len(owners))
        ]
        assert handles[1].clear("t") == 1
        assert [len(handle.get("t")) for handle in handles] == [1, 0, 1, 1, 1, 1, 1]

    def test_a_handle_keeps_its_owner(self, store: Any) -> None:
        handle = store.for_owner(ANN)
        assert handle.owner == ANN
        assert handle.for_owner(ANN).owner == ANN
        for other in (BOB, None):
            with pytest.raises(OwnerMismatch):
                handle.for_owner(other)
        with pytest.raises(InvalidOwner):
            store.for_owner(Owner(name="user", id="x" * 256))
        with pytest.raises(InvalidOwner):
            store.for_owner("ann")

    def test_namespaces_do_not_share(
        self, face: Callable[[ChatMemory], Any], namespace: str
    ) -> None:
        one, two = (face(self.make_store(f"{namespace}-{n}")) for n in (1, 2))
        one.add("t", ["one"])
        assert two.get("t") == []
        assert two.add("t", ["two"])[0].position == 1
        assert [m.content for m in one.get("t")] == ["one"]

    def test_another_instance_reads_what_was_added(
        self, face: Callable[[ChatMemory], Any], namespace: str, store: Any
    ) -> None:
        added = store.for_owner(ANN).add("t", ["x"])
        again = face(self.make_store(namespace))
        assert again.for_owner(ANN).get("t") == added
        assert again.get("t") == []
