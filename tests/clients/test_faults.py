"""Everything that goes wrong on the way, in both worlds."""

from __future__ import annotations

import socket
import time

import pytest

from convmem.chat import ChatRequest, TextDelta
from convmem.clients import HttpChatService, Timeouts, exchange
from convmem.exceptions import (
    ConfigurationError,
    ProviderAuthError,
    ProviderBadResponse,
    ProviderError,
    ProviderRateLimited,
    ProviderRejected,
    ProviderTimeout,
    ProviderUnavailable,
    ProviderUnreachable,
    StreamIncomplete,
    ToolUseFailed,
)
from convmem.testing.model_server import (
    DROP,
    HANG_UP,
    ModelServer,
    Reply,
    chat_reply,
    chunk,
    error_reply,
    sse,
    stream_reply,
)
from tests.clients.calling import BOTH, HELLO, WORLDS, listen, outcome, service_at

A = sse(chunk({"content": "a"}))


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (error_reply(400, "bad"), ProviderRejected),
        (error_reply(400, "m", code="tool_use_failed"), ToolUseFailed),
        (error_reply(401, "who"), ProviderAuthError),
        (error_reply(403, "no"), ProviderAuthError),
        (error_reply(404, "where"), ProviderRejected),
        (error_reply(413, "big"), ProviderRejected),
        (error_reply(422, "odd"), ProviderRejected),
        (error_reply(429, "slow"), ProviderRateLimited),
        (error_reply(500, "oh"), ProviderUnavailable),
        (error_reply(503, "busy"), ProviderUnavailable),
        (error_reply(529, "busy"), ProviderUnavailable),
        (Reply(status=502, body="<html>Bad gateway</html>"), ProviderUnavailable),
        (Reply(status=404, body={"error": "model 'x' not found"}), ProviderRejected),
        (Reply(status=422, body={"detail": [{"msg": "extra"}]}), ProviderRejected),
        (Reply(status=307, headers={"location": "/"}), ProviderBadResponse),
        (Reply(body={"error": {"code": 429, "message": "m"}}), ProviderRateLimited),
        (Reply(body="<html>hello</html>"), ProviderBadResponse),
        (Reply(body={"hello": 1}), ProviderBadResponse),
    ],
    ids=str,
)
@BOTH
@WORLDS
async def test_an_error_answer(
    server: ModelServer,
    world: str,
    streamed: bool,
    reply: Reply,
    error: type[ProviderError],
) -> None:
    server.script(reply)
    with pytest.raises(ProviderError) as caught:
        await outcome(service_at(server), world, streamed=streamed)
    assert type(caught.value) is error
    assert caught.value.details["provider"] == "custom"
    assert caught.value.details["model"] == "m"
    assert len(server.requests) == 1


@BOTH
@WORLDS
async def test_the_wait_that_a_provider_asks_for(
    server: ModelServer, world: str, streamed: bool
) -> None:
    headers = {"retry-after": "7", "x-request-id": "up-1"}
    server.script(Reply(status=429, headers=headers, body={"error": "slow"}))
    with pytest.raises(ProviderRateLimited) as caught:
        await outcome(service_at(server), world, streamed=streamed)
    assert caught.value.retry_after == 7.0
    assert caught.value.details["request_id"] == "up-1"


# --- connections ---


@BOTH
@WORLDS
async def test_nobody_listens(world: str, streamed: bool) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        url = f"http://127.0.0.1:{port}/v1"
        service = HttpChatService("custom", "m", base_url=url)
        with pytest.raises(ProviderUnreachable) as caught:
            await outcome(service, world, streamed=streamed)
    assert caught.value.retryable
    assert "127.0.0.1" in caught.value.message


@BOTH
@WORLDS
async def test_no_such_host(world: str, streamed: bool) -> None:
    service = HttpChatService("custom", "m", base_url="http://no.such.invalid/v1")
    with pytest.raises(ProviderUnreachable, match=r"no\.such\.invalid"):
        await outcome(service, world, streamed=streamed)


@BOTH
@WORLDS
async def test_the_connection_drops_before_any_answer(
    server: ModelServer, world: str, streamed: bool
) -> None:
    server.script(Reply(drop=True))
    with pytest.raises(ProviderUnreachable):
        await outcome(service_at(server), world, streamed=streamed)


@pytest.mark.parametrize("how", [DROP, HANG_UP])
@WORLDS
async def test_the_connection_drops_in_a_stream(
    server: ModelServer, world: str, how: str
) -> None:
    server.script(Reply(steps=[A, A, 0.05, how]))
    heard = await listen(service_at(server), world)
    assert heard.deltas == [TextDelta(text="a"), TextDelta(text="a")]
    assert isinstance(heard.error, StreamIncomplete)
    assert heard.error.partial is not None
    assert heard.error.partial.text == "aa"
    assert heard.error.partial.message.status == "incomplete"
    assert heard.error.retryable


@pytest.mark.parametrize("how", [DROP, HANG_UP])
@WORLDS
async def test_the_connection_drops_in_a_whole_body(
    server: ModelServer, world: str, how: str
) -> None:
    server.script(Reply(steps=[b'{"choices": [', 0.05, how]))
    with pytest.raises(ProviderUnreachable, match="broke"):
        await outcome(service_at(server), world, streamed=False)


@WORLDS
async def test_a_stream_that_ends_too_early(server: ModelServer, world: str) -> None:
    server.script(stream_reply("abc", done=False))
    heard = await listen(service_at(server), world)
    assert isinstance(heard.error, StreamIncomplete)
    assert heard.error.partial is not None
    assert heard.error.partial.text == "abc"


@WORLDS
async def test_an_error_in_a_stream_is_raised_at_once(
    server: ModelServer, world: str
) -> None:
    bad = sse({"error": {"message": "busy", "type": "overloaded_error"}})
    server.script(Reply(steps=[A + bad, 5.0]))
    started = time.monotonic()
    heard = await listen(service_at(server), world)
    assert time.monotonic() - started < 4
    assert heard.deltas == [TextDelta(text="a")]
    assert isinstance(heard.error, ProviderUnavailable)
    assert heard.error.partial is not None
    assert server.gone.wait(5)


@WORLDS
async def test_what_fails_before_the_first_delta_fails_the_opening(
    server: ModelServer, world: str
) -> None:
    role = sse(chunk({"role": "assistant", "content": ""}))
    bad = sse({"error": {"message": "busy", "type": "overloaded_error"}})
    server.script(Reply(steps=[role, 0.05, bad]))
    with pytest.raises(ProviderUnavailable):
        if world == "sync":
            service_at(server).stream(HELLO)
        else:
            await service_at(server).astream(HELLO)


@WORLDS
async def test_a_body_that_is_not_compressed_as_it_says(
    server: ModelServer, world: str
) -> None:
    server.script(Reply(body=b"not gzip", headers={"content-encoding": "gzip"}))
    with pytest.raises(ProviderBadResponse, match="broken body"):
        await outcome(service_at(server), world, streamed=False)


@WORLDS
async def test_an_answer_over_the_largest_size(
    server: ModelServer, world: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "MAX_BODY_BYTES", 1000)
    server.script(chat_reply("x" * 2000))
    with pytest.raises(ProviderBadResponse, match="over 1000 bytes"):
        await outcome(service_at(server), world, streamed=False)


# --- deadlines ---


@WORLDS
async def test_a_slow_first_event_is_not_an_idle_stream(
    server: ModelServer, world: str
) -> None:
    server.script(Reply(steps=[b": wait\n\n", 0.6, A, sse("[DONE]")]))
    service = service_at(server, timeout={"first_event": 10, "idle": 0.3})
    heard = await listen(service, world)
    assert heard.error is None
    assert heard.deltas == [TextDelta(text="a")]


@pytest.mark.parametrize("keep_alive", [False, True])
@WORLDS
async def test_the_first_event_comes_too_late(
    server: ModelServer, world: str, keep_alive: bool
) -> None:
    ping = [b": still here\n\n", 0.1] * 30
    server.script(Reply(steps=ping) if keep_alive else Reply(delay=5.0))
    service = service_at(server, timeout={"first_event": 0.3, "idle": 10})
    await check_deadline(service, world, "first_event", 0.3)
    assert server.gone.wait(5)


@WORLDS
async def test_a_stream_falls_silent(server: ModelServer, world: str) -> None:
    server.script(Reply(steps=[A, 5.0]))
    service = service_at(server, timeout={"first_event": 10, "idle": 0.3})
    error = await check_deadline(service, world, "idle", 0.3)
    assert error.partial is not None
    assert error.partial.text == "a"
    assert server.gone.wait(5)


@WORLDS
async def test_comments_are_signs_of_life(server: ModelServer, world: str) -> None:
    ping = [b": still here\n\n", 0.15] * 6
    server.script(Reply(steps=[A, *ping, A, sse("[DONE]")]))
    heard = await listen(service_at(server, timeout={"idle": 0.6}), world)
    assert heard.error is None
    assert heard.completion is not None
    assert heard.completion.text == "aa"


@pytest.mark.parametrize("steps", [[A, 5.0], [A, 0.1] * 40], ids=["stall", "trickle"])
@WORLDS
async def test_the_total_deadline_of_a_stream(
    server: ModelServer, world: str, steps: list[bytes | float]
) -> None:
    server.script(Reply(steps=steps))
    service = service_at(server, timeout={"total": 0.5, "idle": None})
    error = await check_deadline(service, world, "total", 0.5)
    assert error.partial is not None
    assert error.partial.text.startswith("a")
    assert server.gone.wait(5)


@pytest.mark.parametrize(
    "reply",
    [Reply(delay=5.0), Reply(steps=[b'{"a": ', 5.0]), Reply(steps=[b" ", 0.1] * 40)],
    ids=["no answer", "stall", "trickle"],
)
@WORLDS
async def test_the_total_deadline_of_a_whole_answer(
    server: ModelServer, world: str, reply: Reply
) -> None:
    server.script(reply)
    service = service_at(server, timeout={"total": 0.5, "first_event": 0.1})
    started = time.monotonic()
    with pytest.raises(ProviderTimeout) as caught:
        await outcome(service, world, streamed=False)
    assert time.monotonic() - started < 4
    assert caught.value.details["phase"] == "total"
    assert server.gone.wait(5)


@WORLDS
async def test_a_request_brings_its_own_total(server: ModelServer, world: str) -> None:
    server.script(Reply(delay=5.0))
    request = ChatRequest(messages=HELLO.messages, timeout=0.3)
    with pytest.raises(ProviderTimeout, match=r"total deadline of 0\.3 s"):
        await outcome(service_at(server), world, streamed=False, request=request)


@BOTH
@WORLDS
async def test_a_server_that_never_accepts(world: str, streamed: bool) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}/v1"
        service = HttpChatService(
            "custom", "m", base_url=url, timeout={"connect": 0.3, "total": 10}
        )
        with pytest.raises(ProviderTimeout) as caught:
            await outcome(service, world, streamed=streamed)
        for client in waiting:
            client.close()
    assert caught.value.details["phase"] == "connect"


@WORLDS
async def test_a_deadline_of_one_call_is_not_that_of_the_next(
    server: ModelServer, world: str
) -> None:
    quick = service_at(server, timeout={"total": 0.4})
    patient = service_at(server, timeout={"total": 10})
    server.script(chat_reply("a"), Reply(delay=0.8, body=chat_reply("b").body))
    assert (await outcome(quick, world, streamed=False)).text == "a"
    assert (await outcome(patient, world, streamed=False)).text == "b"
    assert server.connections == 1


async def check_deadline(
    service: HttpChatService, world: str, phase: str, seconds: float
) -> ProviderTimeout:
    started = time.monotonic()
    heard = await listen(service, world)
    assert seconds * 0.9 < time.monotonic() - started < 4
    assert isinstance(heard.error, ProviderTimeout)
    assert heard.error.details["phase"] == phase
    assert heard.error.retryable
    return heard.error


def test_timeouts_may_be_given_as_they_are() -> None:
    given = Timeouts(connect=1, idle=None)
    service = HttpChatService("openai", "m", timeout=given)
    assert service.timeouts is given


@pytest.mark.parametrize(
    ("value", "total"), [(None, 600.0), (30, 30), ({"TOTAL": 3, "idle": None}, 3)]
)
def test_timeouts_from_settings(value: object, total: float) -> None:
    assert Timeouts.of(value).total == total  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "word"),
    [({"read": 3}, "'read'"), (0, "not 0"), ({"idle": "x"}, "'x'"), (True, "True")],
)
def test_wrong_timeouts(value: object, word: str) -> None:
    with pytest.raises(ConfigurationError, match=word):
        HttpChatService("openai", "m", timeout=value)  # type: ignore[arg-type]
