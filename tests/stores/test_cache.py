"""What only the cache store promises: it says what it has forgotten."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.core.cache import caches
from django.core.cache.backends.locmem import LocMemCache

from convmem.exceptions import StoreBusy
from convmem.messages import Message
from convmem.stores import CacheStore, Totals


@pytest.fixture
def cache(settings: Any) -> Any:
    settings.CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
            "LOCATION": "test-cache",
            "OPTIONS": {"MAX_ENTRIES": 10_000},
        }
    }
    yield caches["default"]
    caches["default"].clear()


@pytest.fixture
def store(cache: Any) -> CacheStore:
    return CacheStore()


def names(cache: LocMemCache, end: str) -> list[str]:
    return [key.split(":", 2)[2] for key in cache._cache if key.endswith(end)]


def evict(cache: LocMemCache, end: str) -> None:
    (name,) = names(cache, end)
    cache.delete(name)


def test_a_lost_batch_is_flagged_message_by_message(
    cache: Any, store: CacheStore
) -> None:
    for number in range(4):
        store.add("t", [f"q{number}", Message.assistant(f"a{number}")])
    evict(cache, ":3")
    messages = store.get("t")
    assert [m.content for m in messages] == ["q0", "a0", "", "", "q2", "a2", "q3", "a3"]
    lost = messages[2:4]
    assert [(m.status, m.position, m.metadata) for m in lost] == [
        ("corrupt", 3, {"gap": True}),
        ("corrupt", 4, {"gap": True}),
    ]
    assert store.totals("t") == Totals(count=8, first_position=1, last_position=8)
    assert store.newest("t", 5) == messages[-5:]
    assert [m for c in store.chunks("t", 3) for m in c][:2] == messages[-3:-1]


@pytest.mark.parametrize("end", [":1", ":7"])
def test_a_lost_first_or_last_batch_is_flagged(
    cache: Any, store: CacheStore, end: str
) -> None:
    for number in range(4):
        store.add("t", [f"q{number}", f"a{number}"])
    evict(cache, end)
    lost = [m.position for m in store.get("t") if m.status == "corrupt"]
    assert lost == [int(end[1:]), int(end[1:]) + 1]
    assert store.newest("t", 3) == store.get("t")[-3:]
    assert store.add("t", ["next"])[0].position == 9


def test_a_damaged_entry_is_a_gap(cache: Any, store: CacheStore) -> None:
    store.add("t", ["a", "b"])
    store.add("t", ["c"])
    (name,) = names(cache, ":1")
    cache.set(name, "{broken")
    assert [m.status for m in store.get("t")] == ["corrupt", "corrupt", "complete"]


def test_one_damaged_message_hurts_no_other(cache: Any, store: CacheStore) -> None:
    store.add("t", ["a", "b"])
    (name,) = names(cache, ":1")
    cache.set(name, cache.get(name).replace('"role":"user","content":"a"', '"role":7'))
    assert [(m.status, m.content) for m in store.get("t")] == [
        ("corrupt", ""),
        ("complete", "b"),
    ]


def test_a_batch_longer_than_the_look_back_is_found(store: CacheStore) -> None:
    store.add("t", [f"{n}" for n in range(500)])
    store.add("t", ["last"])
    assert [m.content for m in store.newest("t", 3)] == ["498", "499", "last"]
    assert [m.position for m in store.newest("t", 2, before=250)] == [248, 249]


def test_without_its_counter_a_conversation_begins_anew(
    cache: Any, store: CacheStore
) -> None:
    store.add("t", ["a", "b"])
    evict(cache, ":last")
    assert store.get("t") == []
    assert store.totals("t") == Totals()
    store.add("t", ["c"])
    assert [m.content for m in store.get("t")] == ["c"]


def test_without_its_head_nothing_old_comes_back(cache: Any, store: CacheStore) -> None:
    store.add("t", ["a", "b"])
    evict(cache, ":head")
    assert store.get("t") == []
    store.add("t", ["c"])
    assert [m.content for m in store.get("t")] == ["c"]


def test_a_batch_that_its_writer_did_not_store_is_stored_by_the_retry(
    cache: Any, store: CacheStore
) -> None:
    first = store.add("t", ["q", "a"], key="k")
    evict(cache, ":1")
    again = store.add("t", ["q", "a"], key="k")
    assert [(m.position, m.content) for m in again] == [
        (m.position, m.content) for m in first
    ]
    assert store.get("t") == again


def test_a_slower_writer_with_the_same_key_gives_its_numbers_back(
    cache: Any, store: CacheStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both looked for the key before either had bound it."""
    first = store.add("t", ["q", "a"], key="k")
    claimed = "convmem.stores.cachelog.Log.claimed"
    real = CacheStore._log(store, "t").claimed.__func__
    calls = iter([True])

    def blind_once(self: Any, head: Any, key: str) -> Any:
        return None if next(calls, False) else real(self, head, key)

    monkeypatch.setattr(claimed, blind_once)
    assert store.add("t", ["q", "a"], key="k") == first
    assert store.get("t") == first
    assert store.totals("t") == Totals(count=2, first_position=1, last_position=2)
    (after,) = store.add("t", ["next"])
    assert after.position == 5
    assert store.totals("t") == Totals(count=3, first_position=1, last_position=5)
    assert [m.position for m in store.newest("t", 2)] == [2, 5]
    assert store.clear("t") == 3
    assert store.totals("t") == Totals()


def test_a_batch_that_the_cache_refuses_is_an_error(
    cache: Any, store: CacheStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add("t", ["small"])
    real = LocMemCache.add

    def full(self: Any, key: str, value: Any, *rest: Any, **more: Any) -> bool:
        if '"messages"' in str(value):
            return False
        return real(self, key, value, *rest, **more)

    monkeypatch.setattr(LocMemCache, "add", full)
    with pytest.raises(StoreBusy, match="did not keep"):
        store.add("t", ["large"])


def test_an_append_lets_all_entries_live_on_together(cache: Any) -> None:
    store = CacheStore(timeout=0.8)
    store.add("t", ["a"])
    for text in "bcd":
        time.sleep(0.5)
        store.add("t", [text])
    assert [m.content for m in store.get("t")] == ["a", "b", "c", "d"]
    time.sleep(1.1)
    assert store.get("t") == []


def test_texts_are_json(cache: Any, store: CacheStore) -> None:
    store.add("t", ["grüße"])
    (name,) = names(cache, ":1")
    assert cache.get(name).startswith(
        '{"count":1,"messages":[{"role":"user","content":'
    )
