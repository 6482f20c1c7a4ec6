"""Whatever is done to a store, it behaves as lists of messages would."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from convmem.exceptions import IdempotencyConflict
from convmem.messages import SYSTEM_ROLES, Message
from convmem.owners import NOBODY, Owner
from convmem.stores import CacheStore, ChatMemory, DatabaseStore, LocalStore, Totals

texts = st.text(
    st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20
)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "developer", "user", "assistant"]),
    content=texts,
    metadata=st.dictionaries(
        st.text("abc", max_size=2), st.integers(-9, 9), max_size=2
    ),
)
batches = st.lists(messages, min_size=1, max_size=5)
places = st.tuples(
    st.sampled_from([NOBODY, Owner(name="user", id="1"), Owner(name="user", id="2")]),
    st.sampled_from(["t", "T", "t "]),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), places, batches, st.none()),
        st.tuples(st.just("add"), places, batches, st.sampled_from(["k", "K"])),
        st.tuples(st.just("again"), places),
        st.tuples(st.just("clear"), places),
        st.tuples(st.just("read"), places, st.integers(0, 12), st.integers(0, 20)),
    ),
    max_size=20,
)
model_settings = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class Model:
    """The same store made of lists."""

    def __init__(self, store: ChatMemory) -> None:
        self.store = store
        self.kept: dict[Any, list[Message]] = {}
        self.last: dict[Any, int] = {}
        self.keys: dict[Any, dict[str, tuple[list[Message], list[Message]]]] = {}

    def run(self, step: Any) -> None:
        verb, place, *rest = step
        handle = self.store.for_owner(place[0])
        getattr(self, verb)(handle, place, *rest)
        self.check(handle, place)

    def add(
        self, store: Any, place: Any, batch: list[Message], key: str | None
    ) -> None:
        known = self.keys.setdefault(place, {})
        if key in known:
            sent, stored = known[key]
            if sent != batch:
                with pytest.raises(IdempotencyConflict):
                    store.add(place[1], batch, key=key)
                return
            assert store.add(place[1], batch, key=key) == stored
            return
        added = store.add(place[1], batch, key=key)
        first = self.last.get(place, 0) + 1
        assert added == [
            m.replace(position=first + n, created_at=added[n].created_at)
            for n, m in enumerate(batch)
        ]
        self.last[place] = first + len(batch) - 1
        self.kept.setdefault(place, []).extend(added)
        if key is not None:
            known[key] = (batch, added)

    def again(self, store: Any, place: Any) -> None:
        """Send each batch that had a key once more."""
        for key, (sent, stored) in self.keys.get(place, {}).items():
            assert store.add(place[1], sent, key=key) == stored

    def clear(self, store: Any, place: Any) -> None:
        assert store.clear(place[1]) == len(self.kept.pop(place, []))
        self.keys.pop(place, None)

    def read(self, store: Any, place: Any, limit: int, before: int) -> None:
        kept = self.kept.get(place, [])
        older = [m for m in kept if m.position < before]
        assert store.newest(place[1], limit) == kept[max(0, len(kept) - limit) :]
        assert (
            store.newest(place[1], limit, before=before)
            == (older[max(0, len(older) - limit) :])
        )
        others = [m for m in kept if m.role not in SYSTEM_ROLES]
        newest = others[max(0, len(others) - limit) :]
        assert store.window(place[1], limit).messages == tuple(
            m for m in kept if m.role in SYSTEM_ROLES or m in newest
        )
        chunks = list(store.chunks(place[1], limit + 1))
        assert [m for chunk in reversed(chunks) for m in chunk] == kept

    def check(self, store: Any, place: Any) -> None:
        kept = self.kept.get(place, [])
        assert store.get(place[1]) == kept
        assert store.system_messages(place[1]) == [
            m for m in kept if m.role in SYSTEM_ROLES
        ]
        totals = Totals(
            count=len(kept),
            first_position=kept[0].position if kept else None,
            last_position=kept[-1].position if kept else None,
        )
        assert store.totals(place[1]) == totals
        assert store.window(place[1], 3).totals == totals


def behaves(store: ChatMemory, work: list[Any]) -> None:
    model = Model(store)
    for step in work:
        model.run(step)


@pytest.mark.django_db
@model_settings
@given(work=steps)
def test_the_database_store(work: list[Any]) -> None:
    behaves(DatabaseStore(namespace=uuid.uuid4().hex), work)


@model_settings
@given(work=steps)
def test_the_local_store(work: list[Any]) -> None:
    behaves(LocalStore(namespace=uuid.uuid4().hex), work)


@model_settings
@given(work=steps)
def test_the_cache_store(redis: str, work: list[Any]) -> None:
    behaves(CacheStore(namespace=uuid.uuid4().hex, cache="redis", timeout=60), work)
