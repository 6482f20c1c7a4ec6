"""The contract of every store: keep each conversation whole, decide nothing."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import ClassVar, Self

from asgiref.sync import sync_to_async
from django.core import checks

from convmem.exceptions import OwnerMismatch
from convmem.messages import SYSTEM_ROLES, Message, Value
from convmem.owners import NOBODY, Owner, check_owner
from convmem.stores.rows import Given, check_limit


class Totals(Value, frozen=True):
    """Counters of one conversation. Positions are None when it is empty."""

    count: int = 0
    first_position: int | None = None
    last_position: int | None = None


class Loaded(Value, frozen=True):
    """A suffix of a conversation: ``messages`` oldest first, and the totals of the
    whole, read together."""

    messages: tuple[Message, ...]
    totals: Totals


class ChatMemory(ABC):
    """Messages of conversations, by the caller's ``conversation_id``.

    Only `get`, `add` and `clear` are abstract; the other reads have defaults made of
    `get`, which a backend overrides to read less. Each verb has an ``a`` twin: by
    default one hop to a thread, overridden where a backend is truly asynchronous.

    A store answers for one owner (`NOBODY` at first); `for_owner` gives a handle for
    another. What `add` returned is seen by the next `get` of anybody who asks the same
    store. ``namespace`` separates aliases that share a backend.
    """

    #: `add` honours ``key``.
    supports_idempotency: ClassVar[bool] = False
    #: The content outlives the process.
    is_persistent: ClassVar[bool] = False

    def __init__(self, *, namespace: str = "default") -> None:
        self.namespace = namespace
        self.owner: Owner = NOBODY

    def for_owner(self, owner: Owner | None) -> Self:
        """Return a handle on the same store, bound to ``owner`` (None: `NOBODY`).

        A handle that is bound to a different owner already refuses with
        `OwnerMismatch`.
        """
        wanted = NOBODY if owner is None else check_owner(owner)
        if wanted == self.owner:
            return self
        if self.owner != NOBODY:
            raise OwnerMismatch(
                "This store handle is bound to another owner; "
                "take a handle from the unbound store instead."
            )
        handle = copy.copy(self)
        handle.owner = wanted
        return handle

    def check(self) -> list[checks.CheckMessage]:
        """Return problems of this store's set-up, for ``manage.py check``."""
        return []

    # --- verbs ---

    @abstractmethod
    def get(self, conversation_id: str) -> list[Message]:
        """Return every message, oldest first; ``[]`` for an unknown conversation.

        Each has its ``position`` and ``created_at``. A row that cannot be read comes
        as an empty message with status ``corrupt``.
        """

    @abstractmethod
    def add(
        self,
        conversation_id: str,
        messages: Given,
        *,
        key: str | None = None,
    ) -> list[Message]:
        """Append a batch, all or nothing, and return it as stored.

        ``key`` (at most 255 characters) makes the call idempotent: the same key with
        the same batch adds nothing and returns the stored messages; with another batch
        it raises `IdempotencyConflict`. Raises `EmptyBatch`, `InvalidMessage`,
        `MessageTooLarge`, `InvalidConversationId`.
        """

    @abstractmethod
    def clear(self, conversation_id: str) -> int:
        """Delete the conversation's messages; return how many there were. Positions
        are not used again; idempotency keys are."""

    def erase(self, conversation_id: str) -> int:
        """Delete the conversation with all that is known of it; return how many
        messages there were. An id that is used again starts anew, positions too."""
        return self.clear(conversation_id)

    # --- reads that policies make ---

    def totals(self, conversation_id: str) -> Totals:
        """Return the counters of the conversation."""
        return _totals(self.get(conversation_id))

    def newest(
        self, conversation_id: str, limit: int, *, before: int | None = None
    ) -> list[Message]:
        """Return the newest ``limit`` messages (with positions under ``before``),
        oldest first. Raises `InvalidWindow` for a negative ``limit``."""
        check_limit(limit)
        messages = self.get(conversation_id)
        if before is not None:
            messages = [m for m in messages if (m.position or 0) < before]
        return messages[len(messages) - min(limit, len(messages)) :]

    def system_messages(self, conversation_id: str) -> list[Message]:
        """Return the system and developer messages, oldest first."""
        return [m for m in self.get(conversation_id) if m.role in SYSTEM_ROLES]

    def window(self, conversation_id: str, limit: int) -> Loaded:
        """Return every system message and the newest ``limit`` other ones, oldest
        first, with the totals of the whole conversation."""
        check_limit(limit)
        messages = self.get(conversation_id)
        others = [m for m in messages if m.role not in SYSTEM_ROLES]
        kept = {id(m) for m in others[len(others) - min(limit, len(others)) :]}
        chosen = [m for m in messages if m.role in SYSTEM_ROLES or id(m) in kept]
        return Loaded(messages=tuple(chosen), totals=_totals(messages))

    def chunks(self, conversation_id: str, size: int = 64) -> Iterator[list[Message]]:
        """Yield the conversation in chunks, newest chunk first, each oldest first."""
        before: int | None = None
        while chunk := self.newest(conversation_id, size, before=before):
            yield chunk
            if len(chunk) < size:
                return
            before = chunk[0].position

    # --- twins ---

    async def aget(self, conversation_id: str) -> list[Message]:
        return await sync_to_async(self.get)(conversation_id)

    async def aadd(
        self,
        conversation_id: str,
        messages: Given,
        *,
        key: str | None = None,
    ) -> list[Message]:
        return await sync_to_async(self.add)(conversation_id, messages, key=key)

    async def aclear(self, conversation_id: str) -> int:
        return await sync_to_async(self.clear)(conversation_id)

    async def aerase(self, conversation_id: str) -> int:
        return await sync_to_async(self.erase)(conversation_id)

    async def atotals(self, conversation_id: str) -> Totals:
        return await sync_to_async(self.totals)(conversation_id)

    async def anewest(
        self, conversation_id: str, limit: int, *, before: int | None = None
    ) -> list[Message]:
        return await sync_to_async(self.newest)(conversation_id, limit, before=before)

    async def asystem_messages(self, conversation_id: str) -> list[Message]:
        return await sync_to_async(self.system_messages)(conversation_id)

    async def awindow(self, conversation_id: str, limit: int) -> Loaded:
        return await sync_to_async(self.window)(conversation_id, limit)

    async def achunks(
        self, conversation_id: str, size: int = 64
    ) -> AsyncIterator[list[Message]]:
        before: int | None = None
        while chunk := await self.anewest(conversation_id, size, before=before):
            yield chunk
            if len(chunk) < size:
                return
            before = chunk[0].position


def _totals(messages: Sequence[Message]) -> Totals:
    if not messages:
        return Totals()
    return Totals(
        count=len(messages),
        first_position=messages[0].position,
        last_position=messages[-1].position,
    )
