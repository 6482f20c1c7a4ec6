"""Memory providers: the policy between a store and a model."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from asgiref.sync import sync_to_async
from django.core import checks

from convmem.conf import settings
from convmem.exceptions import OwnerMismatch, UnknownStore
from convmem.handlers import stores
from convmem.kernel.flow import Flow, arun, io, run
from convmem.memory.budget import TokenWindow, windows_of
from convmem.memory.planner import Draft, compared, draft, live
from convmem.memory.turns import lacks_start
from convmem.memory.view import History, View
from convmem.memory.windows import CHUNK, Window, deciding
from convmem.messages import SYSTEM_ROLES, Message
from convmem.owners import NOBODY, Owner, check_owner
from convmem.stores.base import ChatMemory, Totals
from convmem.validation import check_batch, storable


class MemoryProvider(ABC):
    """The policy of a conversation's memory: what is loaded, kept and shown.

    Write `history`, `append`, `prepare` and `clear`; the rest has defaults. Each verb
    that does I/O has an ``a`` twin, by default one hop to a thread.

    **Visibility.** When `append` has returned, `history` in the same caller sees what
    was appended. A provider that writes in the background finishes first, or answers
    `history` from what it still has to write.

    **Owners.** A provider answers for one owner (`NOBODY` at first). One that keeps
    owners apart sets ``supports_owners`` and reads ``self.owner``; for any other,
    `for_owner` refuses, so that two owners never share a conversation by accident.
    """

    #: `append` honours ``key``.
    supports_idempotency: ClassVar[bool] = False
    #: Conversations of different owners are kept apart.
    supports_owners: ClassVar[bool] = False

    owner: Owner = NOBODY

    @staticmethod
    def default(
        store: ChatMemory | str | None = None, window: int | Window | None = None
    ) -> DefaultMemoryProvider:
        """Return the provider that most projects want; see `DefaultMemoryProvider`."""
        return DefaultMemoryProvider(store, window)

    def for_owner(self, owner: Owner | None) -> Self:
        """Return this provider bound to ``owner`` (None: `NOBODY`).

        Raises `OwnerMismatch` when it is bound to another one already, or when it does
        not keep owners apart.
        """
        wanted = NOBODY if owner is None else check_owner(owner)
        if wanted == self.owner:
            return self
        if not self.supports_owners:
            raise OwnerMismatch(
                f"{type(self).__name__} does not keep owners apart; set "
                "supports_owners and use self.owner, or call it without an owner."
            )
        if self.owner != NOBODY:
            raise OwnerMismatch(
                "This memory provider is bound to another owner; "
                "bind the original provider instead."
            )
        bound = copy.copy(self)
        bound.owner = wanted
        return bound

    def check(self) -> list[checks.CheckMessage]:
        """Return problems of this provider's set-up, for ``manage.py check``."""
        return []

    # --- verbs ---

    @abstractmethod
    def history(self, conversation_id: str) -> History | list[Message]:
        """Return the stored messages that `prepare` needs, oldest first."""

    @abstractmethod
    def append(
        self,
        conversation_id: str,
        messages: Sequence[Message | dict[str, Any] | str],
        *,
        key: str | None = None,
    ) -> list[Message]:
        """Store a batch at the end and return it as stored.

        The same ``key`` with the same batch stores it once, if
        ``supports_idempotency``.
        """

    @abstractmethod
    def prepare(
        self, conversation_id: str, messages: Sequence[Message]
    ) -> list[Message]:
        """Return what the model sees of ``messages``: the loaded history and the turn
        that is going on. Changes nothing in the store."""

    @abstractmethod
    def clear(self, conversation_id: str) -> int:
        """Delete the conversation's messages; return how many there were."""

    def plan(
        self,
        conversation_id: str,
        messages: Sequence[Message],
        *,
        open_from: int | None = None,
    ) -> View:
        """Return what `prepare` returns, with the account of what it left out.

        ``open_from`` is the index in ``messages`` where the open turn starts (None:
        found out). This default compares the result of `prepare` with what it was
        given and can only say ``policy`` as the reason.
        """
        shown = self.prepare(conversation_id, messages)
        return compared(messages, shown, open_from)

    # --- twins ---

    async def ahistory(self, conversation_id: str) -> History | list[Message]:
        return await sync_to_async(self.history)(conversation_id)

    async def aappend(
        self,
        conversation_id: str,
        messages: Sequence[Message | dict[str, Any] | str],
        *,
        key: str | None = None,
    ) -> list[Message]:
        return await sync_to_async(self.append)(conversation_id, messages, key=key)

    async def aprepare(
        self, conversation_id: str, messages: Sequence[Message]
    ) -> list[Message]:
        return await sync_to_async(self.prepare)(conversation_id, messages)

    async def aplan(
        self,
        conversation_id: str,
        messages: Sequence[Message],
        *,
        open_from: int | None = None,
    ) -> View:
        return await sync_to_async(self.plan)(
            conversation_id, messages, open_from=open_from
        )

    async def aclear(self, conversation_id: str) -> int:
        return await sync_to_async(self.clear)(conversation_id)


class DefaultMemoryProvider(MemoryProvider):
    """A store and a window, and views that a provider always accepts.

    ``store`` is a `ChatMemory`, an alias of ``CONVMEM["STORES"]``, or None for the
    alias ``default``; an alias is looked up at each use, so a provider can be built at
    import. ``window`` is the number of newest messages to show, a `Window`, or None
    for all of them; ``max_tokens`` adds a `TokenWindow` after it. Trimming is done on
    reading only: the store keeps everything. A store without idempotency keys gets a
    comparison instead: a batch that came with a key and equals the stored tail is not
    added again.

    `plan` leaves out superseded and corrupt messages, applies the window, then mends
    the result (`convmem.memory.repair`). ``repair=False`` leaves only the window.
    ``keep_failed=True`` shows failed turns that have no answer.
    """

    supports_idempotency = True
    supports_owners = True

    def __init__(
        self,
        store: ChatMemory | str | None = None,
        window: int | Window | None = None,
        *,
        max_tokens: int | None = None,
        repair: bool = True,
        keep_failed: bool = False,
    ) -> None:
        if not (store is None or isinstance(store, str | ChatMemory)):
            raise UnknownStore(
                "store must be a ChatMemory, an alias of CONVMEM['STORES'] or None, "
                f"not {type(store).__name__}."
            )
        self._store: ChatMemory | str = "default" if store is None else store
        self.windows = windows_of(window, max_tokens)
        self.repair = repair
        self.keep_failed = keep_failed
        if isinstance(store, ChatMemory):
            self.owner = store.owner

    @property
    def store(self) -> ChatMemory:
        """The store, bound to this provider's owner."""
        found = self._store
        if isinstance(found, str):
            found = stores[found]
        return found if found.owner == self.owner else found.for_owner(self.owner)

    # --- verbs ---

    def history(self, conversation_id: str) -> History:
        return run(self._history(conversation_id))

    async def ahistory(self, conversation_id: str) -> History:
        return await arun(self._history(conversation_id))

    def append(
        self,
        conversation_id: str,
        messages: Sequence[Message | dict[str, Any] | str],
        *,
        key: str | None = None,
    ) -> list[Message]:
        return run(self._append(conversation_id, messages, key))

    async def aappend(
        self,
        conversation_id: str,
        messages: Sequence[Message | dict[str, Any] | str],
        *,
        key: str | None = None,
    ) -> list[Message]:
        return await arun(self._append(conversation_id, messages, key))

    def prepare(
        self,
        conversation_id: str,
        messages: Sequence[Message],
        *,
        open_from: int | None = None,
    ) -> list[Message]:
        return self._draft(messages, open_from).messages

    async def aprepare(
        self,
        conversation_id: str,
        messages: Sequence[Message],
        *,
        open_from: int | None = None,
    ) -> list[Message]:
        return self.prepare(conversation_id, messages, open_from=open_from)

    def plan(
        self,
        conversation_id: str,
        messages: Sequence[Message],
        *,
        open_from: int | None = None,
    ) -> View:
        """Return what the model sees of ``messages`` and the account of the rest.

        ``open_from`` is the index where the open turn starts; inside a turn it means
        that turn's start. None finds it out: from the last user message on, unless
        the list ends in an assistant message without tool calls. No I/O.
        """
        counter = next(
            (w.counter for w in self.windows if isinstance(w, TokenWindow)), None
        )
        return self._draft(messages, open_from).view(messages, counter)

    async def aplan(
        self,
        conversation_id: str,
        messages: Sequence[Message],
        *,
        open_from: int | None = None,
    ) -> View:
        return self.plan(conversation_id, messages, open_from=open_from)

    def clear(self, conversation_id: str) -> int:
        return self.store.clear(conversation_id)

    async def aclear(self, conversation_id: str) -> int:
        return await self.store.aclear(conversation_id)

    # --- flows ---

    def _history(self, conversation_id: str) -> Flow[History]:
        store = self.store
        limits = [w.first_read for w in self.windows if w.first_read is not None]
        if not limits or len(limits) < len(self.windows):
            messages = yield from io(store.get, store.aget, conversation_id)
            return History(messages, totals=_totals(messages))
        # At least one, to see whether the conversation ends in an open turn.
        size = max(min(limits), 1)
        loaded = yield from io(store.window, store.awindow, conversation_id, size)
        history = History(loaded.messages, totals=loaded.totals)
        before: int | None = None
        while len(history) < loaded.totals.count and not self._is_enough(history):
            size = max(size, CHUNK)
            if before is None:
                before = next((m.position for m in history if not _is_system(m)), None)
            older = yield from io(
                store.newest, store.anewest, conversation_id, size, before=before
            )
            if not older:
                break
            before = older[0].position
            history += [m for m in older if not _is_system(m)]
            history.sort(key=_position)
            size *= 2  # so that asking again and again stays linear
        return history

    def _is_enough(self, history: History) -> bool:
        messages = live(history)
        if lacks_start(messages):
            return False
        return any(w.enough(messages) for w in deciding(self.windows))

    def _append(
        self,
        conversation_id: str,
        messages: Sequence[Message | dict[str, Any] | str],
        key: str | None,
    ) -> Flow[list[Message]]:
        store = self.store
        if key is None or store.supports_idempotency:
            return (
                yield from io(store.add, store.aadd, conversation_id, messages, key=key)
            )
        batch = check_batch(messages)
        tail = yield from io(store.newest, store.anewest, conversation_id, len(batch))
        if _is_replay(batch, tail):
            return tail
        return (yield from io(store.add, store.aadd, conversation_id, batch))

    def _draft(self, messages: Sequence[Message], open_from: int | None) -> Draft:
        return draft(
            messages,
            open_from=open_from,
            windows=self.windows,
            mend=self.repair,
            keep_failed=self.keep_failed,
        )


def _is_system(message: Message) -> bool:
    return message.role in SYSTEM_ROLES


def _position(message: Message) -> int:
    return message.position or 0


def _totals(messages: Sequence[Message]) -> Totals:
    if not messages:
        return Totals()
    return Totals(
        count=len(messages),
        first_position=messages[0].position,
        last_position=messages[-1].position,
    )


def _is_replay(batch: Sequence[Message], tail: Sequence[Message]) -> bool:
    """Return whether ``tail`` is ``batch`` as a store keeps it, times aside."""
    if len(batch) != len(tail):
        return False
    limit = settings.max_message_bytes
    for index, (given, stored) in enumerate(zip(batch, tail, strict=True)):
        wanted, _ = storable(given, index=index, max_bytes=limit)
        if wanted.replace(created_at=None) != stored.replace(
            created_at=None, position=None
        ):
            return False
    return True
