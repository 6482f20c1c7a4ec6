"""Calls over a real loopback connection, in both worlds, whole and streamed."""

from __future__ import annotations

import json

import pytest

from convmem.chat import ChatRequest, TextDelta, ToolCallDelta, ToolSpec
from convmem.clients import HttpChatService
from convmem.exceptions import BadInput
from convmem.handlers import services
from convmem.messages import ImagePart, Message, TextPart, ToolCall, Usage
from convmem.testing.model_server import (
    ModelServer,
    Reply,
    Step,
    chat_reply,
    sse,
    stream_events,
    stream_reply,
)
from tests.clients.calling import (
    BOTH,
    HELLO,
    WORLDS,
    complete,
    listen,
    outcome,
    service_at,
)

USAGE = Usage(input_tokens=3, output_tokens=2, total_tokens=5)
CALLS = Message.assistant(
    tool_calls=(
        ToolCall(id="a", name="add", arguments='{"x": 1}'),
        ToolCall(id="b", name="now", arguments="{}"),
    )
)


@WORLDS
async def test_a_text(server: ModelServer, world: str) -> None:
    server.script(chat_reply(Message.assistant("Hello!", usage=USAGE)))
    completion = await complete(service_at(server), world)
    assert completion.text == "Hello!"
    assert completion.finish_reason == "stop"
    assert completion.usage is not None
    assert completion.usage.output_tokens == 2
    assert completion.model == "scripted"
    (received,) = server.requests
    assert (received.method, received.path) == ("POST", "/v1/chat/completions")
    assert received.json == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
    }
    assert received.headers["idempotency-key"] == "req-1"
    assert received.headers["x-request-id"] == "req-1"
    assert received.headers["user-agent"].startswith("django-convmem/")
    assert "authorization" not in received.headers


@WORLDS
async def test_a_streamed_text(server: ModelServer, world: str) -> None:
    server.script(stream_reply(Message.assistant("Hello you", usage=USAGE)))
    heard = await listen(service_at(server), world)
    assert heard.error is None
    assert heard.deltas == [TextDelta(text=t) for t in ("Hell", "o yo", "u")]
    assert heard.completion is not None
    assert heard.completion.text == "Hello you"
    assert heard.completion.message.status == "complete"
    assert heard.completion.usage is not None
    assert server.requests[0].json["stream"] is True
    assert server.requests[0].json["stream_options"] == {"include_usage": True}
    assert server.requests[0].headers["accept-encoding"] == "identity"


@BOTH
@WORLDS
async def test_tool_calls(server: ModelServer, world: str, streamed: bool) -> None:
    server.script(stream_reply(CALLS, size=3) if streamed else chat_reply(CALLS))
    tool = ToolSpec(name="add", parameters={"type": "object"})
    request = ChatRequest(messages=HELLO.messages, tools=(tool,), tool_choice="auto")
    completion = await outcome(
        service_at(server), world, streamed=streamed, request=request
    )
    assert completion.tool_calls == CALLS.tool_calls
    assert completion.finish_reason == "tool_calls"
    assert server.requests[0].json["tools"][0]["function"]["name"] == "add"
    assert server.requests[0].json["tool_choice"] == "auto"


@WORLDS
async def test_tool_call_deltas_come_in_pieces(server: ModelServer, world: str) -> None:
    server.script(stream_reply(CALLS, size=3))
    heard = await listen(service_at(server), world)
    assert heard.deltas[0] == ToolCallDelta(index=0, id="a", name="add")
    assert {d.index for d in heard.deltas if isinstance(d, ToolCallDelta)} == {0, 1}


@WORLDS
async def test_a_conversation_with_tools_and_images(
    server: ModelServer, world: str
) -> None:
    server.script(chat_reply("ok"))
    image = ImagePart(url="data:image/png;base64,AAA=")
    messages = (
        Message.system("Be kind."),
        Message.user((TextPart(text="What?"), image)),
        CALLS,
        Message.tool("a", "3"),
        Message.tool("b", "noon"),
    )
    await complete(service_at(server), world, ChatRequest(messages=messages))
    sent = server.requests[0].json["messages"]
    assert [m["role"] for m in sent] == ["system", "user", "assistant", "tool", "tool"]
    assert sent[1]["content"][1]["image_url"]["url"] == image.url
    assert sent[2]["content"] is None
    assert [m["tool_call_id"] for m in sent[3:]] == ["a", "b"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 5000])
@WORLDS
async def test_a_stream_in_writes_of_any_size(
    server: ModelServer, world: str, size: int
) -> None:
    text = "né😀\u2028x\u0085"
    data = b"".join(sse(e, end="\r\n") for e in stream_events(text, size=1))
    data = b": hello\r\n\r\n" + data + sse("[DONE]", end="\r\n")
    steps: list[Step] = [data[i : i + size] for i in range(0, len(data), size)]
    server.script(Reply(steps=steps))
    heard = await listen(service_at(server), world)
    assert heard.error is None
    assert heard.completion is not None
    assert heard.completion.text == text
    assert [d.text for d in heard.deltas if isinstance(d, TextDelta)] == list(text)


@WORLDS
async def test_a_server_that_does_not_stream(server: ModelServer, world: str) -> None:
    server.script(chat_reply("whole"))
    heard = await listen(service_at(server), world)
    assert heard.deltas == [TextDelta(text="whole")]
    assert heard.completion is not None
    assert heard.completion.text == "whole"


@WORLDS
async def test_one_call_is_one_attempt(server: ModelServer, world: str) -> None:
    server.default = Reply(status=503, body={"error": "busy"})
    for streamed in (False, True):
        with pytest.raises(Exception, match="busy"):
            await outcome(service_at(server), world, streamed=streamed)
    assert len(server.requests) == 2


@WORLDS
async def test_connections_are_used_again(server: ModelServer, world: str) -> None:
    service = service_at(server)
    for n in range(3):
        server.script(chat_reply("a"), stream_reply("b"))
        await complete(service, world)
        heard = await listen(service, world)
        assert heard.error is None, n
    assert server.connections == 1


# --- settings and defaults ---


@WORLDS
async def test_defaults_fill_what_a_request_leaves_open(
    server: ModelServer, world: str
) -> None:
    service = service_at(
        server,
        defaults={
            "temperature": 0.2,
            "stop": ["x"],
            "top_k": 5,
            "max_output_tokens": 9,
        },
        headers={"X-Team": "a"},
    )
    server.default = chat_reply("ok")
    await complete(service, world)
    request = ChatRequest(
        messages=HELLO.messages, model="other", temperature=0.0, options={"top_k": 1}
    )
    await complete(service, world, request)
    first, second = (received.json for received in server.requests)
    for sent in (first, second):
        del sent["messages"]
    assert first == {
        "model": "m",
        "temperature": 0.2,
        "stop": ["x"],
        "top_k": 5,
        "max_tokens": 9,
    }
    assert second == {**first, "model": "other", "temperature": 0.0, "top_k": 1}
    assert server.requests[0].headers["x-team"] == "a"


async def test_what_was_left_out_is_reported(server: ModelServer) -> None:
    service = HttpChatService("groq", "m", base_url=server.url)
    server.default = chat_reply("ok")
    request = ChatRequest(messages=HELLO.messages, options={"n": 2})
    assert service.complete(request).extra["dropped_parameters"] == ["n"]
    assert "n" not in server.requests[0].json
    assert "dropped_parameters" not in service.complete(HELLO).extra


async def test_a_service_without_a_model_needs_one_in_the_request(
    server: ModelServer,
) -> None:
    service = HttpChatService("custom", base_url=server.url)
    with pytest.raises(BadInput, match="name a model"):
        service.complete(HELLO)
    server.script(chat_reply("ok"))
    service.complete(ChatRequest(messages=HELLO.messages, model="x"))
    assert server.requests[0].json["model"] == "x"


def test_a_service_from_settings(server: ModelServer, settings: object) -> None:
    options = {
        "PROVIDER": "ollama",
        "MODEL": "qwen3",
        "BASE_URL": f"{server.url}/",
        "TIMEOUT": {"TOTAL": 5},
        "PROFILE": {"null_content": "omit"},
        "DEFAULTS": {"temperature": 0.5},
    }
    backend = {"BACKEND": "convmem.clients.HttpChatService", "OPTIONS": options}
    settings.CONVMEM = {"SERVICES": {"wire": backend}}  # type: ignore[attr-defined]
    service = services["wire"]
    assert isinstance(service, HttpChatService)
    assert services["wire"] is service
    assert service.timeouts.total == 5
    assert service.profile.null_content == "omit"
    server.script(chat_reply("ok"))
    assert service.complete(HELLO).text == "ok"
    assert server.requests[0].path == "/v1/chat/completions"
    assert server.requests[0].json["temperature"] == 0.5


def test_a_base_url_with_a_query(server: ModelServer) -> None:
    server.script(chat_reply("ok"))
    url = server.url.replace("/v1", "/deploy/x?api-version=1")
    HttpChatService("custom", "m", base_url=url).complete(HELLO)
    assert server.requests[0].path == "/deploy/x/chat/completions?api-version=1"


def test_lone_surrogates_and_nan_can_be_sent(server: ModelServer) -> None:
    server.script(chat_reply("ok"))
    request = ChatRequest(
        messages=(Message.user("a\ud83d"),), options={"x": float("nan")}
    )
    service_at(server).complete(request)
    assert json.loads(server.requests[0].body)["messages"][0]["content"] == "a\ufffd"
