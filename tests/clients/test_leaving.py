"""Whoever leaves closes the connection to the provider, so that it stops generating."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from convmem.chat import TextDelta
from convmem.clients import pool
from convmem.exceptions import Interrupted
from convmem.kernel.flow import AsyncIteration, Flow, iterate, stream
from convmem.testing.model_server import (
    ModelServer,
    Reply,
    Step,
    chunk,
    sse,
    stream_reply,
)
from tests.clients.calling import HELLO, WORLDS, listen, service_at

A = sse(chunk({"content": "a"}))
ENDLESS: list[Step] = [A, 0.05] * 400


async def in_flight() -> int:
    lent = await pool._loop_pool()
    return sum(shard.in_flight for shard in lent._shards)


@WORLDS
async def test_closing_early(server: ModelServer, world: str) -> None:
    server.script(Reply(steps=ENDLESS))
    service = service_at(server)
    if world == "sync":
        source = service.stream(HELLO)
        assert next(source) == TextDelta(text="a")
        source.close()
        assert list(source) == []
        completion = source.completion()
    else:
        answer = await service.astream(HELLO)
        assert await anext(answer) == TextDelta(text="a")
        await answer.aclose()
        assert [delta async for delta in answer] == []
        completion = answer.completion()
        assert await in_flight() == 0
    assert server.gone.wait(5)
    assert completion.message.status == "incomplete"
    assert completion.finish_reason == "interrupted"
    assert completion.text.startswith("a")


@WORLDS
async def test_leaving_a_with_block(server: ModelServer, world: str) -> None:
    server.script(Reply(steps=ENDLESS))
    service = service_at(server)
    with pytest.raises(RuntimeError, match="mine"):
        if world == "sync":
            with service.stream(HELLO) as source:
                next(source)
                raise RuntimeError("mine")
        else:
            async with await service.astream(HELLO) as answer:
                await anext(answer)
                raise RuntimeError("mine")
    assert server.gone.wait(5)


@WORLDS
async def test_closing_twice_and_at_the_end(server: ModelServer, world: str) -> None:
    server.script(stream_reply("abc"))
    service = service_at(server)
    if world == "sync":
        source = service.stream(HELLO)
        assert len(list(source)) == 1
        source.close()
        source.close()
        completion = source.completion()
    else:
        answer = await service.astream(HELLO)
        assert len([delta async for delta in answer]) == 1
        await answer.aclose()
        await answer.aclose()
        completion = answer.completion()
    assert completion.finish_reason == "stop"
    assert not server.gone.is_set()


@pytest.mark.parametrize("when", ["opening", "reading", "complete"])
async def test_cancelling_the_task(server: ModelServer, when: str) -> None:
    steps: list[Step] = [b": wait\n\n", 10.0] if when == "opening" else [A, 10.0]
    server.script(Reply(delay=10.0) if when == "complete" else Reply(steps=steps))
    service = service_at(server)
    reading = asyncio.Event()

    async def call() -> None:
        if when == "complete":
            await service.acomplete(HELLO)
        async for _ in await service.astream(HELLO):
            reading.set()

    task = asyncio.create_task(call())
    if when == "reading":
        await asyncio.wait_for(reading.wait(), 5)
    await asyncio.sleep(0.3)
    assert server.requests
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(server.gone.wait, 5)
    assert await in_flight() == 0


async def test_a_wait_for_around_the_call(server: ModelServer) -> None:
    server.script(Reply(steps=[A, 10.0]))
    answer = await service_at(server).astream(HELLO)
    await anext(answer)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(answer), 0.1)
    assert answer.completion().text == "a"
    assert await asyncio.to_thread(server.gone.wait, 5)


def test_closing_from_another_thread(server: ModelServer) -> None:
    server.script(Reply(steps=ENDLESS))
    source = service_at(server).stream(HELLO)
    next(source)
    done = threading.Event()
    threading.Thread(target=lambda: (source.close(), done.set())).start()
    assert done.wait(5)
    assert server.gone.wait(5)


# --- under the flow drivers ---


def talk(service: object, seen: list[object]) -> Flow[str]:
    try:
        completion = yield from stream(
            lambda: service.stream(HELLO),  # type: ignore[attr-defined]
            lambda: service.astream(HELLO),  # type: ignore[attr-defined]
        )
    except Interrupted as error:
        seen.append(error.partial)
        raise
    return completion.text


@WORLDS
async def test_a_flow_that_is_left(server: ModelServer, world: str) -> None:
    server.script(Reply(steps=ENDLESS))
    seen: list[object] = []
    flow = talk(service_at(server), seen)
    if world == "sync":
        events = iterate(flow)
        next(events)
        events.close()
    else:
        async with AsyncIteration(flow) as running:
            await anext(running)
    assert server.gone.wait(5)
    (partial,) = seen
    assert partial.text.startswith("a")  # type: ignore[attr-defined]


@WORLDS
async def test_a_flow_to_its_end(server: ModelServer, world: str) -> None:
    server.script(stream_reply("hello"))
    seen: list[object] = []
    flow = talk(service_at(server), seen)
    if world == "sync":
        deltas = list(iterate(flow))
    else:
        deltas = [event async for event in AsyncIteration(flow)]
    assert deltas == [TextDelta(text="hell"), TextDelta(text="o")]
    assert seen == []


async def test_an_answer_that_is_dropped_unread(server: ModelServer) -> None:
    server.script(Reply(steps=ENDLESS))
    answer = await service_at(server).astream(HELLO)
    await anext(answer)
    assert await in_flight() == 1
    del answer
    gc.collect()
    assert await in_flight() == 0
    assert await asyncio.to_thread(server.gone.wait, 5)


async def test_nothing_is_left_open(server: ModelServer) -> None:
    """Dropped sources leave no warning and no lent connection behind."""
    server.default = stream_reply("abc")
    service = service_at(server)
    for _ in range(5):
        answer = await service.astream(HELLO)
        async for _delta in answer:
            pass
        assert (await listen(service, "sync")).error is None
    del answer
    gc.collect()
    assert await in_flight() == 0
