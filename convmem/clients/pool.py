"""Connection pools: one a process for sync callers, some an event loop for async ones.

A pool outlives calls, so connections and their TLS handshakes are used again. One TLS
context serves the whole process (making one takes tens of milliseconds). The cost of a
request in httpx's asynchronous pool grows with the number of its connections, so under
asyncio each client carries at most `PER_CLIENT` requests and more clients are opened
when needed.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections.abc import AsyncGenerator
from weakref import WeakKeyDictionary

import httpx

PER_CLIENT = 8
_KEEP_ALIVE = 30.0
# Waiting for a free connection is the caller's business (threads, tasks), not ours.
_SYNC_LIMITS = httpx.Limits(
    max_connections=None,
    max_keepalive_connections=64,
    keepalive_expiry=_KEEP_ALIVE,
)
_ASYNC_LIMITS = httpx.Limits(
    max_connections=None,
    max_keepalive_connections=PER_CLIENT,
    keepalive_expiry=_KEEP_ALIVE,
)


class _Process:
    """What one process owns. A forked child must not touch its parent's sockets."""

    def __init__(self, inherited: _Process | None = None) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.client: httpx.Client | None = None
        self.context: ssl.SSLContext | None = None
        self.loops: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopPool] = (
            WeakKeyDictionary()
        )
        # Kept, so that the child never closes what its parent still speaks through.
        self.inherited = inherited

    def tls(self) -> ssl.SSLContext:
        if self.context is None:
            self.context = httpx.create_ssl_context()
        return self.context


_process = _Process()


def _current() -> _Process:
    global _process
    if _process.pid != os.getpid():
        _process = _Process(inherited=_process)
    return _process


def sync_client() -> httpx.Client:
    """Return this process's client; it may be used from all threads at once."""
    process = _current()
    if process.client is None:
        with process.lock:
            if process.client is None:
                process.client = httpx.Client(verify=process.tls(), limits=_SYNC_LIMITS)
    return process.client


async def lend() -> Shard:
    """Return a client of the running loop for one request; give it back afterwards."""
    pool = await _loop_pool()
    return pool.take()


async def _loop_pool() -> LoopPool:
    loop = asyncio.get_running_loop()
    process = _current()
    with process.lock:
        pool = process.loops.get(loop)
        if pool is None:
            for other in [other for other in process.loops if other.is_closed()]:
                del process.loops[other]
            pool = process.loops[loop] = LoopPool(process.tls())
    await pool.closes_with(loop)
    return pool


class Shard:
    """One client and how many requests it carries."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.client = httpx.AsyncClient(verify=context, limits=_ASYNC_LIMITS)
        self.in_flight = 0

    def give_back(self) -> None:
        """The request's body has been read, or its connection closed."""
        self.in_flight -= 1


class LoopPool:
    """The clients of one event loop."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._shards: list[Shard] = []
        self._guard: AsyncGenerator[None, None] | None = None

    def take(self) -> Shard:
        """Return the first shard with room, a new one when all are full."""
        for shard in self._shards:
            if shard.in_flight < PER_CLIENT:
                break
        else:
            shard = Shard(self._context)
            self._shards.append(shard)
        shard.in_flight += 1
        return shard

    async def closes_with(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the connections closed when the loop shuts down.

        A loop closes its open asynchronous generators at its end (``asyncio.run`` and
        ``async_to_sync`` both see to it); ours waits for just that.
        """
        if self._guard is None:
            self._guard = self._until_shutdown(loop)
            await anext(self._guard)

    async def _until_shutdown(
        self, loop: asyncio.AbstractEventLoop
    ) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            _current().loops.pop(loop, None)
            for shard in self._shards:
                await shard.client.aclose()
