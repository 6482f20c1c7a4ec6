"""A store in a cache: shared between processes, and allowed to forget."""

from __future__ import annotations

from typing import ClassVar

from django.core import checks
from django.core.cache import InvalidCacheBackendError, caches

from convmem.exceptions import ConfigurationError, StoreBusy
from convmem.messages import Message
from convmem.owners import conversation_key
from convmem.stores import setup
from convmem.stores.base import ChatMemory, Totals
from convmem.stores.cachelog import Claim, Head, Log, State, entry_messages
from convmem.stores.rows import Batch, Given, check_limit, key_conflict, prepare
from convmem.validation import check_conversation_id

FORTNIGHT = 14 * 24 * 3600
#: Positions looked at beyond the ones that were asked for, to meet a batch's start.
LOOK_BACK = 64


class CacheStore(ChatMemory):
    """Keeps conversations in the cache with the alias ``cache``, one entry a batch.

    ``timeout`` is how long, in seconds, a conversation is kept after its newest append
    (None: until the cache needs the room). What the cache evicts before that is not
    passed over in silence: each lost message comes as an empty one with status
    ``corrupt`` and ``{"gap": True}`` in its metadata. When the cache has forgotten the
    counters too, the conversation is unknown. An idempotency key is known for
    ``timeout`` seconds.

    The cache must be one whose ``incr`` is atomic: Redis, Memcached, or local memory
    for a single process; `check` refuses file, database and dummy caches.
    """

    supports_idempotency: ClassVar[bool] = True

    def __init__(
        self,
        *,
        namespace: str = "default",
        cache: str = "default",
        timeout: float | None = FORTNIGHT,
    ) -> None:
        super().__init__(namespace=namespace)
        if timeout is not None and not timeout > 0:
            raise ConfigurationError(
                f"CacheStore: timeout is positive seconds or None, not {timeout!r}."
            )
        self.cache = cache
        self.timeout = timeout

    def check(self) -> list[checks.CheckMessage]:
        return setup.check_cache(self.cache)

    def get(self, conversation_id: str) -> list[Message]:
        log = self._log(conversation_id)
        state = log.state()
        if state is None:
            return []
        return log.read(state.head, state.first, state.last, whole=True)

    def add(
        self, conversation_id: str, messages: Given, *, key: str | None = None
    ) -> list[Message]:
        log = self._log(conversation_id)
        batch = prepare(messages, key)
        state = log.state() if batch.key else None
        claim = log.claimed(state.head, batch.key) if state and batch.key else None
        if state and claim:
            return self._again(log, state.head, claim, batch)
        head, last = log.reserve(len(batch.bodies))
        claim = self._claim(log, head, last, batch)
        if claim:
            log.void(head, last, len(batch.bodies))
            return self._again(log, head, claim, batch)
        stored = self._write(log, head, last - len(batch.bodies) + 1, batch)
        log.refresh(head, last)
        # Another call with this key may have stored the batch first, with its own time.
        return stored if batch.key else batch.numbered(last)

    def clear(self, conversation_id: str) -> int:
        log = self._log(conversation_id)
        state = log.state()
        if state is None:
            return 0
        log.clear(state)
        return state.count

    def erase(self, conversation_id: str) -> int:
        log = self._log(conversation_id)
        state = log.state()
        if state is None:
            return 0
        log.erase(state)
        return state.count

    def totals(self, conversation_id: str) -> Totals:
        state = self._log(conversation_id).state()
        if state is None or not state.count:
            return Totals()
        if state.voids:  # the first or the last position may be an unused one
            return super().totals(conversation_id)
        return Totals(
            count=state.count, first_position=state.first, last_position=state.last
        )

    def newest(
        self, conversation_id: str, limit: int, *, before: int | None = None
    ) -> list[Message]:
        check_limit(limit)
        log = self._log(conversation_id)
        state = log.state()
        if state is None or not limit:
            return []
        high = state.last if before is None else min(state.last, before - 1)
        return self._suffix(log, state, high, limit)

    def _suffix(self, log: Log, state: State, high: int, limit: int) -> list[Message]:
        """Read backwards, further each time, until the newest ``limit`` are there."""
        span = limit + LOOK_BACK
        while True:
            low = max(state.first, high - span + 1)
            whole = low == state.first
            messages = log.read(state.head, low, high, whole=whole)
            if whole or len(messages) >= limit:
                return messages[-limit:]
            span *= 2

    def _claim(self, log: Log, head: Head, last: int, batch: Batch) -> Claim | None:
        """Bind the batch's key to it; return the claim of another that was faster."""
        if batch.key is None or batch.digest is None:
            return None
        mine = Claim(digest=batch.digest, first=last - len(batch.bodies) + 1)
        held = log.claim(head, batch.key, mine)
        return None if held == mine else held

    def _again(self, log: Log, head: Head, claim: Claim, batch: Batch) -> list[Message]:
        """Return the batch that the key stands for. If its writer died before storing
        it, or the cache dropped it, it is stored now: it is the same batch."""
        if claim.digest != batch.digest:
            raise key_conflict(claim.first)
        return self._write(log, head, claim.first, batch)

    def _write(self, log: Log, head: Head, first: int, batch: Batch) -> list[Message]:
        entry = log.write(head, first, batch)
        if entry is None:
            raise StoreBusy(
                f"The cache {self.cache!r} did not keep the batch; it may be too large "
                "for one entry, or the cache is out of room."
            )
        return entry_messages(entry, first)

    def _log(self, conversation_id: str) -> Log:
        check_conversation_id(conversation_id)
        key = conversation_key(self.namespace, self.owner, conversation_id)
        try:
            cache = caches[self.cache]
        except InvalidCacheBackendError as error:
            raise ConfigurationError(f"CacheStore: {error}") from error
        return Log(cache, key, self.timeout)
