"""One conversation as a log of cache entries.

Names, all under the conversation's key::

    head                    which generation of the log is in use, and where it begins
    <generation>:last       the last position given out (``incr``)
    <generation>:void       positions given out and not used (``incr``)
    <generation>:<first>    a batch, by the position of its first message
    <generation>:<base>:k:<hash>   the batch that was added with an idempotency key

A position that no entry covers belongs to a batch that was evicted, or that another
writer is just now storing. Entries never change once written.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from django.core.cache.backends.base import BaseCache

from convmem.exceptions import StoreBusy
from convmem.messages import Message, Value
from convmem.stores.rows import Batch, corrupt, read

#: Entries asked for at a time.
SLICE = 1000
#: How much longer than `timeout` entries are kept, so that one refresh per quarter of
#: it is enough to keep everything for at least `timeout` after the newest append.
GRACE = 1.25


class Head(Value, frozen=True):
    """``base`` and ``voided`` are the counters as the last `clear` found them."""

    generation: int
    base: int = 0
    voided: int = 0


class State(Value, frozen=True):
    """A head with the counters read after it."""

    head: Head
    last: int
    voided: int

    @property
    def first(self) -> int:
        """The position after the last `clear`."""
        return self.head.base + 1

    @property
    def voids(self) -> int:
        return self.voided - self.head.voided

    @property
    def count(self) -> int:
        return self.last - self.head.base - self.voids


class Entry(Value, frozen=True):
    """A batch. One without messages marks positions that were not used."""

    count: int
    messages: tuple[msgspec.Raw, ...] = ()


class Claim(Value, frozen=True):
    """What an idempotency key stands for."""

    digest: str
    first: int


class Log:
    """Reads and writes one conversation's entries in ``cache``."""

    def __init__(self, cache: BaseCache, key: str, timeout: float | None) -> None:
        self.cache = cache
        self.prefix = f"convmem:{key}"
        self.timeout = timeout
        self.ttl = None if timeout is None else timeout * GRACE

    def _name(self, *parts: object) -> str:
        return ":".join([self.prefix, *map(str, parts)])

    # --- counters ---

    def state(self) -> State | None:
        """Return the head and counters, None when there is no conversation."""
        head = self._head()
        if head is None:
            return None
        last, void = (self._name(head.generation, name) for name in ("last", "void"))
        found = self.cache.get_many([last, void])
        if last not in found:
            return None
        return State(head=head, last=found[last], voided=found.get(void, 0))

    def reserve(self, count: int) -> tuple[Head, int]:
        """Give out ``count`` positions; return the head and the last of them."""
        head = self._head() or self._begin(time.time_ns())
        while True:
            try:
                return head, self.cache.incr(self._last(head), count)
            except ValueError:
                # The counter was evicted. Positions of this generation might still be
                # in use, so none is given out again.
                head = self._begin(head.generation + 1, replace=True)

    def void(self, head: Head, last: int, count: int) -> None:
        """Mark positions as not used."""
        name = self._name(head.generation, "void")
        self.cache.add(name, 0, self.ttl)
        self.cache.incr(name, count)
        self._put(head, last - count + 1, Entry(count=count))

    def _begin(self, generation: int, *, replace: bool = False) -> Head:
        head = Head(generation=generation)
        self.cache.add(self._last(head), 0, self.ttl)
        text = msgspec.json.encode(head).decode()
        if replace:
            self.cache.set(self._name("head"), text, self.ttl)
        elif not self.cache.add(self._name("head"), text, self.ttl):
            return self._head() or head
        return head

    def _head(self) -> Head | None:
        text = self.cache.get(self._name("head"))
        return None if text is None else msgspec.json.decode(text, type=Head)

    def _last(self, head: Head) -> str:
        return self._name(head.generation, "last")

    # --- batches ---

    def write(self, head: Head, first: int, batch: Batch) -> Entry | None:
        """Store the batch unless it is there; return what is there now."""
        raw = tuple(msgspec.Raw(body.encode()) for body in batch.bodies)
        self._put(head, first, Entry(count=len(raw), messages=raw))
        return self._entries(head, [first]).get(first)

    def _put(self, head: Head, first: int, entry: Entry) -> None:
        text = msgspec.json.encode(entry).decode()
        self.cache.add(self._name(head.generation, first), text, self.ttl)

    def read(self, head: Head, low: int, high: int, *, whole: bool) -> list[Message]:
        """Return the messages at ``low`` to ``high``, with a placeholder for each
        position that no entry covers.

        Unless ``whole``, begin with the first entry that is there: what stands before
        it may belong to a batch from before ``low``.
        """
        found = self._entries(head, range(low, high + 1))
        position = low if whole else min(found, default=high + 1)
        messages: list[Message] = []
        while position <= high:
            entry = found.get(position)
            if entry is None:
                messages.append(corrupt(position, gap=True))
                position += 1
            else:
                messages += entry_messages(entry, position)
                position += entry.count
        return [m for m in messages if (m.position or 0) <= high]

    def _entries(self, head: Head, positions: Iterable[int]) -> dict[int, Entry]:
        names = {self._name(head.generation, p): p for p in positions}
        found: dict[int, Entry] = {}
        for part in _slices(list(names)):
            for name, text in self.cache.get_many(part).items():
                entry = _entry(text)
                if entry is not None:
                    found[names[name]] = entry
        return found

    # --- idempotency ---

    def claim(self, head: Head, key: str, claim: Claim) -> Claim:
        """Bind the key to a batch, unless it is bound; return what it stands for."""
        text = msgspec.json.encode(claim).decode()
        if self.cache.add(self._claim(head, key), text, self.ttl):
            return claim
        held = self.claimed(head, key)
        if held is None:
            raise StoreBusy("The cache did not keep an idempotency key; try again.")
        return held

    def claimed(self, head: Head, key: str) -> Claim | None:
        text = self.cache.get(self._claim(head, key))
        return None if text is None else msgspec.json.decode(text, type=Claim)

    def _claim(self, head: Head, key: str) -> str:
        return self._name(head.generation, head.base, "k", key)

    # --- life ---

    def refresh(self, head: Head, last: int) -> None:
        """Let everything live on together, at most once per quarter of the timeout."""
        if self.timeout is None:
            return
        fresh = self._name(head.generation, "fresh")
        if not self.cache.add(fresh, 1, self.timeout * (GRACE - 1)):
            return
        for name in ("last", "void"):
            self.cache.touch(self._name(head.generation, name), self.ttl)
        self.cache.touch(self._name("head"), self.ttl)
        for part in _slices(self._batch_names(head, last)):
            # Touching is one trip an entry; reading and writing back is two in all.
            self.cache.set_many(self.cache.get_many(part), self.ttl)

    def clear(self, state: State) -> None:
        """Begin the log after its present end, then drop what stands before."""
        head = Head(
            generation=state.head.generation, base=state.last, voided=state.voided
        )
        text = msgspec.json.encode(head).decode()
        self.cache.set(self._name("head"), text, self.ttl)
        self._delete(self._batch_names(state.head, state.last))

    def erase(self, state: State) -> None:
        """Drop the whole log."""
        generation = state.head.generation
        self.cache.delete(self._name("head"))
        names = [self._name(generation, name) for name in ("last", "void", "fresh")]
        self._delete(names + self._batch_names(state.head, state.last))

    def _batch_names(self, head: Head, last: int) -> list[str]:
        positions = range(head.base + 1, last + 1)
        return [self._name(head.generation, position) for position in positions]

    def _delete(self, names: list[str]) -> None:
        for part in _slices(names):
            self.cache.delete_many(part)


def entry_messages(entry: Entry, first: int) -> list[Message]:
    """Return the entry's messages; the first has position ``first``."""
    return list(read((p, bytes(raw)) for p, raw in enumerate(entry.messages, first)))


def _entry(text: Any) -> Entry | None:
    """Return the entry of a text; a damaged one is as good as evicted."""
    try:
        entry = msgspec.json.decode(text, type=Entry)
    except (msgspec.DecodeError, TypeError):
        return None
    return entry if entry.count > 0 else None


def _slices(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), SLICE):
        yield names[start : start + SLICE]
