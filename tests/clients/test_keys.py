"""The key reaches the provider and nobody else."""

from __future__ import annotations

import json
import logging
import pickle
import traceback
from typing import Any

import pytest

from convmem.clients import HttpChatService
from convmem.exceptions import ConfigurationError, ProviderError
from convmem.testing.model_server import (
    HANG_UP,
    ModelServer,
    Received,
    Reply,
    chat_reply,
    chunk,
    error_reply,
    sse,
    stream_reply,
)
from tests.clients.calling import BOTH, HELLO, KEY, WORLDS, outcome


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("GROQ_API_KEY", raising=False)


def service_at(server: ModelServer, **options: Any) -> HttpChatService:
    options = {"api_key_env": "MY_KEY", "timeout": {"total": 5}, **options}
    return HttpChatService("openai", "m", base_url=server.url, **options)


@BOTH
@WORLDS
async def test_the_key_is_sent_and_read_at_each_call(
    server: ModelServer, world: str, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.default = stream_reply("ok") if streamed else chat_reply("ok")
    service = service_at(server)
    await outcome(service, world, streamed=streamed)
    monkeypatch.setenv("MY_KEY", " another \n")
    await outcome(service, world, streamed=streamed)
    sent = [received.headers["authorization"] for received in server.requests]
    assert sent == [f"Bearer {KEY}", "Bearer another"]


@BOTH
@WORLDS
async def test_a_missing_key_names_its_variable(
    server: ModelServer, world: str, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(ConfigurationError, match="MY_KEY is not set"):
        await outcome(service_at(server), world, streamed=streamed)
    assert server.requests == []
    assert server.connections == 0


@pytest.mark.parametrize(
    ("provider", "variable"),
    [("openai", "OPENAI_API_KEY"), ("groq", "GROQ_API_KEY")],
)
def test_a_provider_has_its_own_variable(provider: str, variable: str) -> None:
    with pytest.raises(ConfigurationError, match=variable):
        HttpChatService(provider, "m").complete(HELLO)


@pytest.mark.parametrize("provider", ["openai", "groq", "nvidia", "custom", "ollama"])
def test_another_address_gets_no_key_unless_told(
    server: ModelServer, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("GROQ_API_KEY", KEY)
    monkeypatch.setenv("NVIDIA_API_KEY", KEY)
    server.script(chat_reply("ok"))
    HttpChatService(provider, "m", base_url=server.url).complete(HELLO)
    assert "authorization" not in server.requests[0].headers


def test_a_key_from_a_function_and_another_header(server: ModelServer) -> None:
    server.script(chat_reply("ok"))
    profile = {"auth_header": "api-key", "auth_scheme": ""}
    service = service_at(server, api_key_env=lambda: KEY, profile=profile)
    service.complete(HELLO)
    assert server.requests[0].headers["api-key"] == KEY
    assert KEY not in repr(service)
    with pytest.raises(ConfigurationError, match="function"):
        service_at(server, api_key_env=lambda: "").complete(HELLO)


@pytest.mark.parametrize("value", ["a b", "a\nb: c", "schlüssel", "a\x7fb"])
def test_a_key_that_no_header_can_carry(
    server: ModelServer, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(ConfigurationError, match="MY_KEY has characters") as caught:
        service_at(server).complete(HELLO)
    assert value not in str(caught.value)
    assert value not in frames_of(caught.value)
    assert server.connections == 0


def frames_of(error: BaseException) -> str:
    """What an error report would show of our own frames."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    ours = [f for f in frames if "convmem/clients" in f.f_code.co_filename]
    assert ours
    return "".join(repr(frame.f_locals) for frame in ours)


def echo(received: Received) -> Reply:
    """A careless server that quotes the key it got."""
    quoted = received.headers["authorization"]
    return error_reply(401, f"bad key {quoted}", code="invalid_api_key", param=quoted)


def echo_in_stream(received: Received) -> Reply:
    quoted = received.headers["authorization"]
    return Reply(steps=[sse(chunk({"content": "a"})), sse({"error": quoted})])


def break_off(_: Received) -> Reply:
    return Reply(steps=[sse(chunk({"content": "a"})), 0.02, HANG_UP])


@pytest.mark.parametrize(
    "script",
    [
        echo,
        echo_in_stream,
        break_off,
        Reply(drop=True),
        Reply(delay=9),
        Reply(body="x"),
    ],
)
@BOTH
@WORLDS
async def test_no_key_in_errors_logs_and_frames(
    server: ModelServer,
    world: str,
    streamed: bool,
    script: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    server.script(script)
    service = service_at(server, timeout={"total": 0.4})
    with pytest.raises(ProviderError) as caught:
        await outcome(service, world, streamed=streamed)
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    error = caught.value
    assert KEY not in repr(error) + repr(error.details) + repr(error.partial)
    assert KEY not in "".join(traceback.format_exception(error))
    if script not in (echo, echo_in_stream):
        # Those two servers put it into their own body, which is a variable here.
        assert KEY not in frames_of(error)
    assert KEY not in caplog.text
    assert "convmem.clients" in caplog.text
    assert "Hi" not in "".join(
        record.getMessage() for record in caplog.records if "convmem" in record.name
    )


@WORLDS
async def test_no_key_in_logs_of_a_good_call(
    server: ModelServer, world: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.script(chat_reply("secret answer"))
    service = service_at(server)
    completion = await outcome(service, world, streamed=False)
    assert KEY not in caplog.text
    mine = [r.getMessage() for r in caplog.records if r.name == "convmem.clients"]
    assert any("req-1" in line for line in mine)
    assert "secret answer" not in "".join(mine)
    assert KEY not in repr(service) + repr(vars(service)) + repr(completion)


def test_what_shows_a_service_shows_no_secret(server: ModelServer) -> None:
    service = service_at(server)
    assert repr(service) == f"HttpChatService('openai', 'm', base_url='{server.url}')"
    assert KEY.encode() not in pickle.dumps(vars(service).get("profile"))
    assert KEY not in json.dumps(vars(service), default=repr)


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("https://user:pass@host/v1", "must hold no user name"),
        ("host/v1", "must begin with http"),
        ("ftp://host/v1", "must begin with http"),
        ("http://host:port/", "no URL"),
    ],
)
def test_a_wrong_base_url(url: str, word: str) -> None:
    with pytest.raises(ConfigurationError, match=word) as caught:
        HttpChatService("custom", "m", base_url=url)
    assert "pass" not in str(caught.value).replace("password", "")


def test_custom_needs_an_address() -> None:
    with pytest.raises(ConfigurationError, match="needs a base_url"):
        HttpChatService("custom", "m")
    with pytest.raises(ConfigurationError, match="unknown dialect"):
        HttpChatService("openai", "m", profile={"dialect": "klingon"})
    with pytest.raises(ConfigurationError, match="Unknown provider"):
        HttpChatService("opnai", "m")
