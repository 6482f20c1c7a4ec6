"""Memory as a kernel's filter: store what is new, show what the policy says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Any, ClassVar

from convmem.chat import Completion
from convmem.exceptions import BadInput, IdempotencyConflict, Interrupted, UnknownMemory
from convmem.kernel.context import Context, KernelRequest, reply_of
from convmem.kernel.flow import Flow, io, surely
from convmem.kernel.loop import unfinished
from convmem.kernel.onion import ChatCall
from convmem.memory.connection import refuse_transaction, release_connection
from convmem.memory.forms import provider_of
from convmem.memory.keeping import broken_reply
from convmem.memory.provider import DefaultMemoryProvider, MemoryProvider
from convmem.memory.view import History
from convmem.messages import Message, ToolCall
from convmem.stores.base import ChatMemory

_LEDGER = "convmem.memory"
#: What stands in place of an answer that never came.
NO_ANSWER = "(no answer)"


def memory_filter(memory: ChatMemory | MemoryProvider | str) -> MemoryFilter:
    """Return a filter that gives a kernel this memory.

    With a store the model sees the whole history, repaired; with a memory provider
    (or an alias of ``CONVMEM["MEMORIES"]``) that provider's view.
    """
    if isinstance(memory, ChatMemory):
        return MemoryFilter(DefaultMemoryProvider(memory))
    if isinstance(memory, MemoryProvider | str):
        return MemoryFilter(memory)
    raise UnknownMemory(
        "memory_filter() takes a store, a memory provider or an alias of "
        f'CONVMEM["MEMORIES"], not {type(memory).__name__}.'
    )


class MemoryFilter:
    """Stores each round's delta on the way in and the reply on the way out.

    Each is stored under a key made of run and round, so that an attempt made again
    stores nothing twice: an identical reply is not added, a different one is stored
    and supersedes the earlier. When the whole run has failed, what broke off is kept:
    the partial answer as ``incomplete``, without the tool calls that had half arrived.
    A turn without any answer ends in the note ``NO_ANSWER`` of status ``failed``, so
    that views know to leave it out.

    A retrying filter further out must send the same delta again; another one under the
    same run and round is an `IdempotencyConflict`.
    """

    keeps_history: ClassVar[bool] = True

    def __init__(self, memory: MemoryProvider | str) -> None:
        self._memory = memory

    def provider(self, context: Context) -> MemoryProvider:
        """Return the provider bound to the context's owner; a context without an owner
        takes it as it is bound. Raises `OwnerMismatch`."""
        provider = provider_of(self._memory, context.owner)
        assert provider is not None  # noqa: S101 - a filter always has a memory
        return provider

    def around_chat(
        self, request: KernelRequest, call_next: ChatCall
    ) -> Flow[Completion]:
        book = self._book(request)
        yield from refuse_transaction(book.provider)
        try:
            yield from book.store_delta(request.messages)
            view = yield from book.view()
            yield from release_connection(book.provider)
            completion = yield from call_next(request.replace(messages=view))
        except (Exception, Interrupted) as error:
            book.note_broken(getattr(error, "partial", None))
            raise
        yield from book.store_reply(completion)
        return completion

    def settle(self, request: KernelRequest) -> Flow[None]:
        """Leave a valid conversation behind a run that has failed for good.

        ``request`` is the round that would have come next: stored calls without a
        result get the results in it, and error results for the rest. Else what came of
        the answer that broke off is stored.
        """
        ledger = _ledger(request)
        if ledger.open_calls:
            coming = ledger.open_round + 1
            # Of another round they are old, and their ids may be the same.
            left = list(request.messages) if request.round == coming else []
            batch = [_taken(call, left) for call in ledger.open_calls]
            book = self._book(request.replace(round=coming))
            try:
                yield from book.store_delta(batch)
            except BadInput:  # a result that cannot be stored is why the run has failed
                batch = [unfinished(call) for call in ledger.open_calls]
                yield from book.store_delta(batch)
        elif ledger.broken is not None:
            broken_round, partial = ledger.broken
            book = self._book(request.replace(round=broken_round))
            yield from book.store_broken(partial)

    def forget(self, context: Context) -> Flow[None]:
        """Clear the conversation, and its traces where the store can."""
        provider, name = self.provider(context), str(context.conversation_id)
        yield from surely(lambda: io(provider.clear, provider.aclear, name))
        store = getattr(provider, "store", None)
        if isinstance(store, ChatMemory):
            yield from surely(lambda: io(store.erase, store.aerase, name))

    def _book(self, request: KernelRequest) -> _Book:
        return _Book(
            self.provider(request.context),
            request.context,
            request.round,
            _ledger(request),
        )


@dataclass
class _Ledger:
    """What one run has stored: batches by key, the positions that were superseded, the
    first position, the calls that still have no stored result."""

    batches: dict[str, tuple[list[Message], list[Message]]] = field(
        default_factory=dict
    )
    replaced: set[int] = field(default_factory=set)
    first: int | None = None
    open_calls: tuple[ToolCall, ...] = ()
    open_round: int = 0
    #: The round whose answer broke off, and what had come of it.
    broken: tuple[int, Completion | None] | None = None


@dataclass
class _Book:
    """The storage side of one attempt of one round."""

    provider: MemoryProvider
    context: Context
    round: int
    ledger: _Ledger
    #: Position of the delta's last message, once stored.
    last: int | None = None
    stored: bool = False

    @property
    def name(self) -> str:
        return str(self.context.conversation_id)

    def store_delta(self, messages: Sequence[Message]) -> Flow[None]:
        """Store what comes in. Results of tools that an earlier attempt of the run left
        behind are superseded; another user message is an `IdempotencyConflict`."""

        def put() -> Flow[None]:
            if self.round == 0:
                stored = yield from self._append(list(messages), self._key("in"))
            else:
                stored = yield from self._put(list(messages), "in")
            self._note_delta(stored)

        yield from self._surely(put)

    def view(self) -> Flow[tuple[Message, ...]]:
        """Return what the model sees. What was stored after the delta, by an earlier
        attempt or by somebody else, is no part of it."""
        provider, last, first = self.provider, self.last, self.ledger.first
        history = yield from io(provider.history, provider.ahistory, self.name)
        self.ledger.replaced.update(p for m in history for p in m.supersedes)
        known: Sequence[Message] = history
        if last is not None:
            totals = history.totals if isinstance(history, History) else None
            known = History(
                (m for m in history if (m.position or 0) <= last), totals=totals
            )
        open_from = None
        if first is not None:
            starts = (i for i, m in enumerate(known) if (m.position or 0) >= first)
            open_from = next(starts, None)
        view = yield from io(
            provider.plan, provider.aplan, self.name, known, open_from=open_from
        )
        return view.messages

    def store_reply(self, completion: Completion) -> Flow[None]:
        reply = reply_of(completion)
        try:
            yield from self._surely(lambda: self._put([reply], "out"))
        except Interrupted:
            self._note_reply(reply)  # it is stored, or being so
            raise
        except Exception:
            self.note_broken(completion)
            raise
        self._note_reply(reply)

    def note_broken(self, partial: Completion | None) -> None:
        """Remember that no whole answer came: another attempt may bring one."""
        if self.stored:
            self.ledger.broken = self.round, partial

    def store_broken(self, partial: Completion | None) -> Flow[None]:
        """Keep what came of an answer that broke off, or note that none came."""
        message = broken_reply(partial)
        if message.status == "failed":
            if self.round > 0:
                return  # the results of the tools are the end of this turn
            message = message.replace(content=NO_ANSWER)
        yield from self._surely(lambda: self._put([message], "out"))

    def _surely(self, make: Callable[[], Flow[Any]]) -> Flow[Any]:
        return surely(make) if self.provider.supports_idempotency else make()

    def _put(self, batch: list[Message], what: str) -> Flow[list[Message]]:
        """Store the round's ``batch``; what an earlier attempt stored in its place is
        superseded, unless it is the same."""
        gone: tuple[int, ...] = ()
        for attempt in count():
            heir = [batch[0].replace(supersedes=gone), *batch[1:]]
            try:
                stored = yield from self._append(heir, self._key(f"{what}.{attempt}"))
            except IdempotencyConflict as conflict:
                first = conflict.details.get("position")
                gone += yield from self._batch_at(first, batch[0])
            else:
                positions = tuple(m.position for m in stored if m.position is not None)
                if self.ledger.replaced.isdisjoint(positions):
                    self.ledger.replaced.update(gone)
                    return stored
                gone += positions
        raise AssertionError("unreachable")

    def _batch_at(self, first: int | None, like: Message) -> Flow[tuple[int, ...]]:
        """Return the positions of the batch stored at ``first``: one reply, or the tool
        results that stand together."""
        if first is None:
            return ()
        if like.role != "tool":
            return (first,)
        provider = self.provider
        history = yield from io(provider.history, provider.ahistory, self.name)
        later = (m for m in history if (m.position or 0) >= first)
        results = takewhile(lambda m: m.role == "tool", later)
        return tuple(m.position for m in results if m.position is not None)

    def _append(self, batch: list[Message], key: str) -> Flow[list[Message]]:
        """Append under ``key``, also where the provider knows no keys."""
        if key in self.ledger.batches:
            given, stored = self.ledger.batches[key]
            if given == batch:
                return stored
            raise IdempotencyConflict(
                f"Round {self.round} of this run was stored with other messages; "
                "a filter that retries must send the same ones again.",
                position=stored[0].position if stored else None,
            )
        provider = self.provider
        stored = yield from io(
            provider.append, provider.aappend, self.name, batch, key=key
        )
        self.ledger.batches[key] = (batch, stored)
        return stored

    def _note_delta(self, stored: Sequence[Message]) -> None:
        self.stored = True
        self.last = stored[-1].position if stored else None
        if self.round == 0 and stored:
            self.ledger.first = stored[0].position
        if self.round > self.ledger.open_round:
            self.ledger.open_calls = ()

    def _note_reply(self, reply: Message) -> None:
        self.ledger.open_calls = reply.tool_calls
        self.ledger.open_round = self.round
        self.ledger.broken = None

    def _key(self, what: str) -> str:
        return f"{self.context.run_id}:{self.round}:{what}"


def _ledger(request: KernelRequest) -> _Ledger:
    ledger: _Ledger = request.scratch.setdefault(_LEDGER, _Ledger())
    return ledger


def _taken(call: ToolCall, results: list[Message]) -> Message:
    """Take the first result of ``call`` out of ``results``, or make an error one."""
    for index, message in enumerate(results):
        if message.tool_call_id == call.id:
            return results.pop(index)
    return unfinished(call)
