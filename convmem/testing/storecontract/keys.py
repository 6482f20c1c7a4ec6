"""Idempotency keys."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from convmem.exceptions import BadInput, IdempotencyConflict
from convmem.messages import Message
from convmem.testing.storecontract.faces import StoreFixtures
from convmem.testing.storecontract.samples import (
    ANN,
)


class KeysContract(StoreFixtures):
    """A batch with a key is added once."""

    # --- idempotency ---

    @pytest.fixture
    def keyed(self, store: Any) -> Any:
        if not store.supports_idempotency:
            pytest.skip("the store does not support idempotency keys")
        return store

    def test_the_same_key_and_batch_add_nothing(self, keyed: Any) -> None:
        batch = ["q", Message.assistant("a", metadata={"x": 1, "y": [2]})]
        keyed.add("t", ["before"])
        first = keyed.add("t", batch, key="k")
        after = keyed.add("t", ["after"], key="k2")
        same = ["q", Message.assistant("a", metadata={"y": [2], "x": 1})]
        assert keyed.add("t", same, key="k") == first
        assert keyed.add("t", ["after"], key="k2") == after
        assert [m.position for m in keyed.get("t")] == [1, 2, 3, 4]
        assert keyed.totals("t").count == 4

    @pytest.mark.parametrize(
        "other", [["other"], ["q"], ["q", "a", "b"], ["a", "q"]], ids=str
    )
    def test_the_same_key_with_another_batch_conflicts(
        self, keyed: Any, other: list[str]
    ) -> None:
        added = keyed.add("t", ["q", "a"], key="k")
        with pytest.raises(IdempotencyConflict) as caught:
            keyed.add("t", other, key="k")
        assert caught.value.details == {"position": 1}
        assert keyed.get("t") == added
        assert keyed.add("t", ["next"])[0].position == 3

    def test_keys_are_exact_and_belong_to_one_conversation(self, keyed: Any) -> None:
        keys = ["k", "K", "k ", "é", "e\u0301", "x" * 255, "x" * 254, "👩" * 255]
        for number, key in enumerate(keys):
            keyed.add("t", [f"{number}"], key=key)
        assert keyed.totals("t").count == len(keys)
        keyed.add("u", ["other"], key="k")
        keyed.for_owner(ANN).add("t", ["other"], key="k")
        assert keyed.add("t", ["0"], key="k")[0].position == 1

    @pytest.mark.parametrize("bad", ["", "x" * 256, 7])
    def test_a_bad_key_is_refused(self, keyed: Any, bad: Any) -> None:
        with pytest.raises(BadInput) as caught:
            keyed.add("t", ["x"], key=bad)
        assert caught.value.details["field"] == "key"
        assert keyed.get("t") == []

    def test_a_key_may_be_used_again_after_clear(self, keyed: Any) -> None:
        keyed.add("t", ["x"], key="k")
        keyed.clear("t")
        assert [m.position for m in keyed.add("t", ["y"], key="k")] == [2]
        assert [m.content for m in keyed.get("t")] == ["y"]

    def test_one_key_from_many_threads_adds_once(self, keyed: Any) -> None:
        with ThreadPoolExecutor(8) as pool:
            calls = [
                pool.submit(self.in_thread, keyed.add, "t", ["q", "a"], key="k")
                for _ in range(16)
            ]
            results = [call.result() for call in calls]
        found = keyed.get("t")
        assert [m.content for m in found] == ["q", "a"]
        assert all(result == found for result in results)
        assert keyed.totals("t").count == 2
