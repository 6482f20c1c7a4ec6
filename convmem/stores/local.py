"""A store in the memory of the process: for tests, scripts and throw-away work."""

from __future__ import annotations

import threading
from typing import ClassVar

from convmem.messages import Message
from convmem.owners import Owner
from convmem.stores.base import ChatMemory
from convmem.stores.rows import Batch, Given, Row, key_conflict, prepare, read_all
from convmem.validation import check_conversation_id


class _Conversation:
    """Rows of one conversation, its last position, and the batches by their key."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.last = 0
        self.batches: dict[str, tuple[str | None, list[Row]]] = {}


class _Shelf:
    """The conversations of one namespace."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.conversations: dict[tuple[Owner, str], _Conversation] = {}


_shelves: dict[str, _Shelf] = {}
_making = threading.Lock()


def _shelf(namespace: str) -> _Shelf:
    with _making:
        return _shelves.setdefault(namespace, _Shelf())


class LocalStore(ChatMemory):
    """Keeps conversations in the process, shared by all instances of one namespace.

    Nothing is evicted and nothing outlives the process. Texts are kept and not objects,
    so that changing a message that was read changes no conversation.
    """

    supports_idempotency: ClassVar[bool] = True

    def __init__(self, *, namespace: str = "default") -> None:
        super().__init__(namespace=namespace)
        self._shelf = _shelf(namespace)

    def get(self, conversation_id: str) -> list[Message]:
        place = self._place(conversation_id)
        with self._shelf.lock:
            found = self._shelf.conversations.get(place)
            rows = list(found.rows) if found else []
        return read_all(rows)

    def add(
        self, conversation_id: str, messages: Given, *, key: str | None = None
    ) -> list[Message]:
        place = self._place(conversation_id)
        batch = prepare(messages, key)
        with self._shelf.lock:
            found = self._shelf.conversations.setdefault(place, _Conversation())
            earlier = found.batches.get(batch.key) if batch.key else None
            if earlier is None:
                return self._append(found, batch)
        digest, rows = earlier
        if digest != batch.digest:
            raise key_conflict(rows[0][0])
        return read_all(rows)

    def clear(self, conversation_id: str) -> int:
        place = self._place(conversation_id)
        with self._shelf.lock:
            found = self._shelf.conversations.get(place)
            if found is None:
                return 0
            count = len(found.rows)
            found.rows, found.batches = [], {}
        return count

    def erase(self, conversation_id: str) -> int:
        place = self._place(conversation_id)
        with self._shelf.lock:
            found = self._shelf.conversations.pop(place, None)
        return len(found.rows) if found else 0

    def _place(self, conversation_id: str) -> tuple[Owner, str]:
        return self.owner, check_conversation_id(conversation_id)

    def _append(self, found: _Conversation, batch: Batch) -> list[Message]:
        found.last += len(batch.bodies)
        rows = batch.rows(found.last)
        found.rows += rows
        if batch.key is not None:
            found.batches[batch.key] = (batch.digest, rows)
        return batch.numbered(found.last)
