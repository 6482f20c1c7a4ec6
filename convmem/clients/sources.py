"""Sending a call and reading its answer: the sync and the async half, side by side."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx

from convmem.chat import Completion, Delta
from convmem.clients.exchange import DRAIN_SECONDS, Answer, Exchange
from convmem.clients.pool import Shard, lend, sync_client
from convmem.exceptions import ProviderError

# --- sync ---


def fetch(exchange: Exchange, auth: httpx.Auth | None) -> Completion:
    """Send the call and return its whole answer."""
    with exchange.guard(), _on_time(exchange):
        response = _send(exchange, auth)
        try:
            return exchange.reply(response, _read(exchange, response))
        finally:
            response.close()


def open_stream(exchange: Exchange, auth: httpx.Auth | None) -> SyncAnswer:
    """Send the call and return its answer once the first delta has come."""
    with exchange.guard(), _on_time(exchange):
        response = _send(exchange, auth)
        if not response.is_success:
            try:
                exchange.reply(response, _read(exchange, response))
            finally:
                response.close()
    answer = SyncAnswer(exchange, response)
    answer.begin()
    return answer


def _send(exchange: Exchange, auth: httpx.Auth | None) -> httpx.Response:
    client = sync_client()
    request = client.build_request(
        "POST",
        exchange.url,
        headers=exchange.headers,
        content=exchange.content,
        timeout=exchange.http_timeout(),
    )
    response = client.send(request, auth=auth, stream=True, follow_redirects=False)
    exchange.answered(response)
    if "network_stream" in response.extensions:
        _time_reads(response.extensions["network_stream"])
    return response


class _Reading(threading.local):
    """Which call this thread is reading for."""

    exchange: Exchange | None = None


_reading = _Reading()


@contextlib.contextmanager
def _on_time(exchange: Exchange) -> Iterator[None]:
    """Within the block, this thread's reads end at the call's next deadline."""
    _reading.exchange = exchange
    try:
        yield
    finally:
        _reading.exchange = None


def _time_reads(stream: Any) -> None:
    """Have a connection's network stream ask for its limit at each read.

    httpx fixes a request's timeouts when it is sent, but our deadlines move: the limit
    after the first event is another than before. The stream lives as long as its
    connection, over many calls, so the call is looked up by the reading thread.
    """
    read = type(stream).read

    def timed_read(max_bytes: int, timeout: float | None = None) -> bytes:
        exchange = _reading.exchange
        limit = timeout if exchange is None else exchange.left()
        data: bytes = read(stream, max_bytes, timeout=limit)
        return data

    stream.read = timed_read


def _read(exchange: Exchange, response: httpx.Response) -> bytes:
    body = bytearray()
    for data in response.iter_bytes():
        body += data
        exchange.deadlines.heard(event=True)
        exchange.check_deadline()
        exchange.check_size(len(body))
    return bytes(body)


class SyncAnswer(Answer):
    """An open streamed answer. Iterate it, or close it to leave: that closes the
    connection to the provider, so that it stops generating."""

    def __init__(self, exchange: Exchange, response: httpx.Response) -> None:
        decoder = exchange.dialect.StreamDecoder(exchange.profile, response.headers)
        super().__init__(exchange, decoder)
        self._response = response
        self._body = response.iter_bytes()

    def begin(self) -> None:
        """Read until there is a delta or the end."""
        try:
            with self.exchange.guard(), _on_time(self.exchange):
                while self._wants_more():
                    self._take(next(self._body, None))
        except BaseException as error:
            if isinstance(error, ProviderError):
                self._fail(error)
            self.close()
            raise
        if self._over:
            self._release()

    def __iter__(self) -> Iterator[Delta]:
        return self

    def __next__(self) -> Delta:
        if not self._held:
            self.begin()
        if not self._held:
            raise StopIteration
        return self._held.popleft()

    def close(self) -> None:
        """Leave: no more deltas come, and the provider's connection is closed."""
        self._over = True
        self._held.clear()
        self._release()

    def _release(self) -> None:
        """Give the connection back if the answer has ended, else close it."""
        if self._completion is not None and not self._response.is_closed:
            self._drain()
        self._response.close()

    def _drain(self) -> None:
        self.exchange.draining = True
        end = time.monotonic() + DRAIN_SECONDS
        with (
            contextlib.suppress(httpx.HTTPError, OSError),
            _on_time(self.exchange),
        ):
            for _ in self._body:
                if time.monotonic() > end:
                    break

    def __enter__(self) -> SyncAnswer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- async ---


async def afetch(exchange: Exchange, auth: httpx.Auth | None) -> Completion:
    """Send the call and return its whole answer."""
    shard = await lend()
    try:
        with exchange.guard():
            response = await _asend(exchange, auth, shard.client)
            try:
                return exchange.reply(response, await _aread(exchange, response))
            finally:
                await response.aclose()
    finally:
        shard.give_back()


async def aopen_stream(exchange: Exchange, auth: httpx.Auth | None) -> AsyncAnswer:
    """Send the call and return its answer once the first delta has come."""
    shard = await lend()
    try:
        with exchange.guard():
            response = await _asend(exchange, auth, shard.client)
            if not response.is_success:
                try:
                    exchange.reply(response, await _aread(exchange, response))
                finally:
                    await response.aclose()
    except BaseException:
        shard.give_back()
        raise
    answer = AsyncAnswer(exchange, response, shard)
    await answer.begin()
    return answer


async def _asend(
    exchange: Exchange, auth: httpx.Auth | None, client: httpx.AsyncClient
) -> httpx.Response:
    request = client.build_request(
        "POST",
        exchange.url,
        headers=exchange.headers,
        content=exchange.content,
        timeout=exchange.http_timeout(),
    )
    async with asyncio.timeout(exchange.left()):
        response = await client.send(
            request, auth=auth, stream=True, follow_redirects=False
        )
    # From here on asyncio keeps the time: the limits of the head end with it.
    request.extensions["timeout"].clear()
    exchange.answered(response)
    return response


async def _aread(exchange: Exchange, response: httpx.Response) -> bytes:
    body = bytearray()
    chunks = response.aiter_bytes()
    while (data := await _anext(exchange, chunks)) is not None:
        body += data
        exchange.deadlines.heard(event=True)
        exchange.check_deadline()
        exchange.check_size(len(body))
    return bytes(body)


async def _anext(exchange: Exchange, chunks: AsyncIterator[bytes]) -> bytes | None:
    """Return the next piece of a body, None at its end."""
    async with asyncio.timeout(exchange.left()):
        return await anext(chunks, None)


class AsyncAnswer(Answer):
    """An open streamed answer; the asynchronous twin of `SyncAnswer`."""

    def __init__(
        self, exchange: Exchange, response: httpx.Response, shard: Shard
    ) -> None:
        decoder = exchange.dialect.StreamDecoder(exchange.profile, response.headers)
        super().__init__(exchange, decoder)
        self._response = response
        self._shard: Shard | None = shard
        self._body = response.aiter_bytes()

    async def begin(self) -> None:
        """Read until there is a delta or the end."""
        try:
            with self.exchange.guard():
                while self._wants_more():
                    self._take(await _anext(self.exchange, self._body))
        except BaseException as error:
            if isinstance(error, ProviderError):
                self._fail(error)
            await self.aclose()
            raise
        if self._over:
            await self._release()

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        if not self._held:
            await self.begin()
        if not self._held:
            raise StopAsyncIteration
        return self._held.popleft()

    async def aclose(self) -> None:
        """Leave: no more deltas come, and the provider's connection is closed."""
        self._over = True
        self._held.clear()
        await self._release()

    async def _release(self) -> None:
        """Give the connection back if the answer has ended, else close it."""
        if self._shard is None:
            return
        self._give_back()
        try:
            if self._completion is not None:
                await self._drain()
        finally:
            await self._response.aclose()

    def _give_back(self) -> None:
        shard, self._shard = self._shard, None
        if shard is not None:
            shard.give_back()

    async def _drain(self) -> None:
        self.exchange.draining = True
        with contextlib.suppress(httpx.HTTPError, OSError):
            async with asyncio.timeout(DRAIN_SECONDS):
                async for _ in self._body:
                    pass

    def __del__(self) -> None:
        # Dropped unread: the loop closes the body; its place must not stay taken.
        if getattr(self, "_shard", None) is not None:
            self._give_back()

    async def __aenter__(self) -> AsyncAnswer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
