"""Pools: reuse, threads, loops that come and go, and forks."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from asgiref.sync import async_to_sync

from convmem.clients import pool
from convmem.testing.model_server import ModelServer, Reply, chat_reply, stream_reply
from tests.clients.calling import HELLO, listen, service_at


def test_threads_share_one_client(server: ModelServer) -> None:
    server.default = Reply(delay=0.05, body=chat_reply("ok").body)
    service = service_at(server)
    with ThreadPoolExecutor(16) as threads:
        texts = list(threads.map(lambda _: service.complete(HELLO).text, range(64)))
    assert texts == ["ok"] * 64
    assert server.connections <= 17
    assert pool.sync_client() is pool.sync_client()


async def test_many_in_flight_spread_over_clients(server: ModelServer) -> None:
    server.default = Reply(delay=0.2, body=chat_reply("ok").body)
    service = service_at(server)
    await asyncio.gather(*(service.acomplete(HELLO) for _ in range(64)))
    await asyncio.gather(*(service.acomplete(HELLO) for _ in range(64)))
    lent = await pool._loop_pool()
    assert len(lent._shards) == 64 // pool.PER_CLIENT
    assert all(shard.in_flight == 0 for shard in lent._shards)
    assert server.connections == 64


async def test_few_in_flight_stay_on_one_client(server: ModelServer) -> None:
    server.default = stream_reply("ok")
    service = service_at(server)
    for _ in range(10):
        assert (await listen(service, "async")).error is None
    assert len((await pool._loop_pool())._shards) == 1
    assert server.connections == 1


def test_two_hundred_calls_through_async_to_sync(server: ModelServer) -> None:
    server.default = chat_reply("ok")
    service = service_at(server)
    for _ in range(200):
        assert async_to_sync(service.acomplete)(HELLO).text == "ok"
    gc.collect()
    assert len(pool._current().loops) == 0


def test_loops_in_threads_have_pools_of_their_own(server: ModelServer) -> None:
    server.default = chat_reply("ok")
    service = service_at(server)
    pools: list[pool.LoopPool] = []

    async def call() -> None:
        for _ in range(5):
            await service.acomplete(HELLO)
        pools.append(await pool._loop_pool())

    threads = [threading.Thread(target=lambda: asyncio.run(call())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(one) for one in pools}) == 4
    assert server.connections == 4


def test_a_loop_closes_its_connections_at_its_end(server: ModelServer) -> None:
    server.default = chat_reply("ok")
    service = service_at(server)
    clients = []

    async def call() -> None:
        await service.acomplete(HELLO)
        clients.extend((await pool._loop_pool())._shards)

    asyncio.run(call())
    assert [shard.client.is_closed for shard in clients] == [True]


def test_one_tls_context_for_the_process() -> None:
    first = pool._current().tls()
    assert pool._current().tls() is first


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_opens_its_own_connections(server: ModelServer) -> None:
    server.default = chat_reply("ok")
    service = service_at(server)
    service.complete(HELLO)
    parent = pool.sync_client()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        answer = b"failed"
        try:
            fresh = pool.sync_client() is not parent
            if fresh and service.complete(HELLO).text == "ok":
                answer = b"ok"
        finally:
            os.write(writer, answer)
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == b"ok"
    assert os.waitpid(child, 0)[1] == 0
    assert service.complete(HELLO).text == "ok"
    assert pool.sync_client() is parent
    assert server.connections == 2
