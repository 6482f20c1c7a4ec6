"""The public contract over every backend."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import pytest
from django.core.cache import caches
from django.db import connection

from convmem.stores import CacheStore, ChatMemory, DatabaseStore, LocalStore
from convmem.stores.rows import Given, prepare, read_all
from convmem.testing.stores import BasicsContract, ReadsContract, StoreContract
from convmem.validation import check_conversation_id


@pytest.mark.django_db
class TestDatabaseStore(StoreContract):
    def make_store(self, namespace: str) -> ChatMemory:
        return DatabaseStore(namespace=namespace)

    def in_thread(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        finally:
            connection.close()

    @pytest.mark.django_db(transaction=True)
    def test_threads_lose_nothing_and_keep_batches_whole(self, store: Any) -> None:
        super().test_threads_lose_nothing_and_keep_batches_whole(store)

    @pytest.mark.django_db(transaction=True)
    def test_one_key_from_many_threads_adds_once(self, keyed: Any) -> None:
        super().test_one_key_from_many_threads_adds_once(keyed)


class TestLocalStore(StoreContract):
    def make_store(self, namespace: str) -> ChatMemory:
        return LocalStore(namespace=namespace)


class TestCacheStoreInLocalMemory(StoreContract):
    @pytest.fixture(autouse=True)
    def room(self, settings: Any) -> Any:
        """A cache that does not throw out entries in the middle of a test."""
        settings.CACHES = {
            "default": {
                "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
                "LOCATION": "contract",
                "OPTIONS": {"MAX_ENTRIES": 100_000},
            }
        }
        yield
        caches["default"].clear()

    def make_store(self, namespace: str) -> ChatMemory:
        return CacheStore(namespace=namespace)


class TestCacheStoreInRedis(StoreContract):
    @pytest.fixture(autouse=True)
    def server(self, redis: str) -> None:
        """Redis must answer."""

    def make_store(self, namespace: str) -> ChatMemory:
        return CacheStore(namespace=namespace, cache="redis", timeout=60)


class MinimalStore(ChatMemory):
    """Only the three verbs that a backend has to write."""

    conversations: ClassVar[dict[Any, list[str]]] = {}
    cleared: ClassVar[dict[Any, int]] = {}
    lock = threading.Lock()

    def _place(self, conversation_id: str) -> Any:
        return self.namespace, self.owner, check_conversation_id(conversation_id)

    def get(self, conversation_id: str) -> Any:
        place = self._place(conversation_id)
        first = self.cleared.get(place, 0) + 1
        return read_all(list(enumerate(self.conversations.get(place, []), first)))

    def add(
        self, conversation_id: str, messages: Given, *, key: str | None = None
    ) -> Any:
        place = self._place(conversation_id)
        batch = prepare(messages)
        with self.lock:
            bodies = self.conversations.setdefault(place, [])
            bodies += batch.bodies
            last = self.cleared.get(place, 0) + len(bodies)
        return batch.numbered(last)

    def clear(self, conversation_id: str) -> int:
        place = self._place(conversation_id)
        count = len(self.conversations.pop(place, []))
        self.cleared[place] = self.cleared.get(place, 0) + count
        return count


class TestDefaultsOfTheBase(BasicsContract, ReadsContract):
    """The reads that the base class makes of `get`."""

    def make_store(self, namespace: str) -> ChatMemory:
        return MinimalStore(namespace=namespace)
