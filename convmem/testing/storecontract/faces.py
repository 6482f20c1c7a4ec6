"""A fresh store for each test, through its verbs and through their twins."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from convmem.messages import Message
from convmem.owners import Owner
from convmem.stores import ChatMemory

VERBS = (
    "get",
    "add",
    "clear",
    "erase",
    "totals",
    "newest",
    "system_messages",
    "window",
    "chunks",
)


class Twins:
    """A store whose verbs go through their asynchronous twins."""

    def __init__(self, store: ChatMemory) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name in VERBS:
            return async_to_sync(getattr(self._store, f"a{name}"))
        return getattr(self._store, name)

    def for_owner(self, owner: Owner | None) -> Twins:
        return Twins(self._store.for_owner(owner))

    def chunks(self, *args: Any) -> list[list[Message]]:
        async def collect() -> list[list[Message]]:
            return [chunk async for chunk in self._store.achunks(*args)]

        return async_to_sync(collect)()


class StoreFixtures:
    """What the parts of the contract share."""

    def make_store(self, namespace: str) -> ChatMemory:
        """Return a store whose conversations no other namespace shares."""
        raise NotImplementedError

    @pytest.fixture(params=["sync", "async"])
    def face(self, request: pytest.FixtureRequest) -> Callable[[ChatMemory], Any]:
        return Twins if request.param == "async" else lambda store: store

    @pytest.fixture
    def namespace(self) -> str:
        return f"contract-{uuid.uuid4().hex}"

    @pytest.fixture
    def store(self, face: Callable[[ChatMemory], Any], namespace: str) -> Any:
        return face(self.make_store(namespace))

    def in_thread(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run ``call`` in the present thread; override it to clean up afterwards."""
        return call(*args, **kwargs)
