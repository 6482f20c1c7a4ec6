from __future__ import annotations

import httpx
import pytest

from convmem.messages import Message, Usage
from convmem.testing.model_server import (
    DROP,
    ModelServer,
    Reply,
    chat_reply,
    error_reply,
    stream_reply,
    tool_call,
)


@pytest.fixture
def server() -> object:
    with ModelServer() as running:
        yield running


def post(server: ModelServer, **json: object) -> httpx.Response:
    return httpx.post(f"{server.url}/chat/completions", json=json, timeout=5)


def test_it_records_and_answers_in_order(server: ModelServer) -> None:
    usage = Usage(input_tokens=1)
    server.script(
        chat_reply(Message.assistant("a", usage=usage), created=7),
        lambda request: chat_reply(request.json["say"]),
    )
    first = post(server, say="x").json()
    assert first["choices"][0]["message"] == {"role": "assistant", "content": "a"}
    assert (first["usage"], first["created"]) == ({"prompt_tokens": 1}, 7)
    assert post(server, say="b").json()["choices"][0]["message"]["content"] == "b"
    assert [r.json["say"] for r in server.requests] == ["x", "b"]
    assert server.requests[0].headers["content-type"] == "application/json"


def test_an_empty_script_is_a_500_and_a_default_is_not(server: ModelServer) -> None:
    assert post(server).status_code == 500
    server.default = error_reply(429, "slow", code="rate_limit_exceeded")
    answer = post(server)
    assert answer.status_code == 429
    assert answer.json()["error"]["code"] == "rate_limit_exceeded"


def test_a_stream_is_server_sent_events(server: ModelServer) -> None:
    server.script(stream_reply(tool_call("add", '{"a": 1}'), pause=0.01))
    answer = post(server)
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.text.endswith("data: [DONE]\n\n")
    assert answer.text.count('"id": "call_1"') == 1


def test_a_dropped_connection(server: ModelServer) -> None:
    server.script(Reply(drop=True), Reply(steps=[b"x", DROP]))
    for _ in range(2):
        with pytest.raises(httpx.TransportError):
            post(server)
