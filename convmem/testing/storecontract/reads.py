"""What policies read, taking away, and many writers at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from convmem.messages import Message
from convmem.stores import Totals
from convmem.testing.storecontract.faces import VERBS, StoreFixtures
from convmem.testing.storecontract.samples import (
    check_turns,
)


class ReadsContract(StoreFixtures):
    """The reads that policies make agree with `get`."""

    # --- taking away ---

    def test_clear_never_gives_a_position_again(self, store: Any) -> None:
        store.add("t", ["a", "b", "c"])
        store.add("u", ["kept"])
        assert store.clear("t") == 3
        assert store.get("t") == []
        assert store.totals("t") == Totals()
        assert store.window("t", 5).totals == Totals()
        assert store.clear("t") == 0
        assert [m.position for m in store.add("t", ["d"])] == [4]
        assert store.totals("t") == Totals(count=1, first_position=4, last_position=4)
        assert [m.content for m in store.get("u")] == ["kept"]

    def test_erase_leaves_nothing(self, store: Any) -> None:
        store.add("t", ["a", "b"])
        store.add("u", ["kept"])
        assert store.erase("t") == 2
        assert store.get("t") == []
        assert store.erase("t") == 0
        store.add("t", ["c"])
        assert [m.content for m in store.get("t")] == ["c"]
        assert [m.content for m in store.get("u")] == ["kept"]

    # --- reads that policies make ---

    @pytest.fixture
    def filled(self, store: Any) -> Any:
        """A conversation "t" of 40 messages; 1, 2, 12, 22 and 32 are system ones."""
        store.add("t", [Message.system("s1"), Message(role="developer", content="s2")])
        for number in range(3, 41, 2):
            pair = [Message.user(f"{n}") for n in (number, number + 1)]
            if number % 10 == 1:
                pair[1] = Message.system(f"s{number + 1}")
            store.add("t", pair)
        store.add("other", ["noise"] * 5)
        return store

    @pytest.mark.parametrize("before", [None, 0, 1, 2, 8, 41, 99])
    def test_newest_is_the_end_of_get(self, filled: Any, before: int | None) -> None:
        messages = filled.get("t")
        older = [m for m in messages if before is None or m.position < before]
        for limit in (0, 1, 2, 7, 39, 40, 41, 1000):
            expected = older[len(older) - min(limit, len(older)) :]
            assert filled.newest("t", limit, before=before) == expected

    def test_system_messages_are_found_in_order(self, filled: Any) -> None:
        found = filled.system_messages("t")
        assert [m.position for m in found] == [1, 2, 12, 22, 32]
        assert {m.role for m in found} == {"system", "developer"}

    def test_a_window_has_the_system_messages_and_the_newest(self, filled: Any) -> None:
        system = [1, 2, 12, 22, 32]
        others = [n for n in range(1, 41) if n not in system]
        for limit in (0, 1, 9, 35, 36, 1000):
            loaded = filled.window("t", limit)
            kept = others[len(others) - min(limit, len(others)) :]
            assert [m.position for m in loaded.messages] == sorted(system + kept)
            totals = Totals(count=40, first_position=1, last_position=40)
            assert loaded.totals == filled.totals("t") == totals

    @pytest.mark.parametrize("size", [1, 7, 40, 64])
    def test_chunks_are_the_whole_newest_first(self, filled: Any, size: int) -> None:
        chunks = list(filled.chunks("t", size))
        assert [len(c) for c in chunks[:-1]] == [size] * (len(chunks) - 1)
        assert [m for chunk in reversed(chunks) for m in chunk] == filled.get("t")

    # --- many at once ---

    def test_threads_lose_nothing_and_keep_batches_whole(self, store: Any) -> None:
        def write(writer: int) -> None:
            for turn in range(10):
                store.add("t", [f"{writer}:{turn}:{part}" for part in range(3)])

        with ThreadPoolExecutor(8) as pool:
            calls = [pool.submit(self.in_thread, write, w) for w in range(8)]
            for call in calls:
                call.result()
        check_turns(store.get("t"), writers=8, turns=10, size=3)
        assert store.totals("t").count == 240

    # --- the shape of a store ---

    @pytest.mark.parametrize("verb", VERBS)
    def test_every_verb_has_a_twin(self, namespace: str, verb: str) -> None:
        store = self.make_store(namespace)
        twin = getattr(store, f"a{verb}")
        assert inspect.iscoroutinefunction(twin) or inspect.isasyncgenfunction(twin)
        assert _parameters(twin) == _parameters(getattr(store, verb))

    def test_check_returns_messages(self, namespace: str) -> None:
        found = self.make_store(namespace).check()
        assert all(str(message.id).startswith("convmem.") for message in found)


def _parameters(verb: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    parameters = inspect.signature(verb).parameters.values()
    return [(p.name, p.kind, p.default) for p in parameters]
