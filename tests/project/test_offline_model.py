"""The offline model over real HTTP: shapes, streams, refusals."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from project.offline_model import OfflineModel

CLOCK = {
    "type": "function",
    "function": {
        "name": "current_time",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with OfflineModel() as model, httpx.Client(base_url=model.base_url) as client:
        yield client


def ask(client: httpx.Client, *messages: dict[str, Any], **more: Any) -> httpx.Response:
    body = {"model": "offline", "messages": list(messages), **more}
    return client.post("/chat/completions", json=body)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def events(response: httpx.Response) -> list[Any]:
    blocks = response.text.split("\n\n")
    assert blocks.pop() == ""
    assert all(block.startswith("data: ") for block in blocks)
    assert blocks.pop() == "data: [DONE]"
    return [json.loads(block.removeprefix("data: ")) for block in blocks]


def test_models(client):
    listed = client.get("/models").json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["offline"]


def test_whole_answer(client):
    response = ask(client, user("My name is Ada."))
    body = response.json()
    assert response.headers["content-type"] == "application/json"
    assert body["object"] == "chat.completion"
    assert body["choices"] == [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Nice to meet you, Ada.",
                "refusal": None,
            },
            "finish_reason": "stop",
            "logprobs": None,
        }
    ]
    # 15 characters + 4 for the message's frame; 22 characters of answer.
    assert body["usage"] == {
        "prompt_tokens": 8,
        "completion_tokens": 6,
        "total_tokens": 14,
    }


def test_tool_call_and_result(client):
    asked = user("What time is it in Paris?")
    message = ask(client, asked, tools=[CLOCK]).json()["choices"][0]["message"]
    (call,) = message["tool_calls"]
    assert message["content"] is None
    assert call["function"] == {
        "name": "current_time",
        "arguments": '{"city": "Paris"}',
    }
    result = {"role": "tool", "tool_call_id": call["id"], "content": "14:05"}
    final = ask(client, asked, message, result, tools=[CLOCK]).json()["choices"][0]
    assert final["message"]["content"] == "current_time answers: 14:05."
    assert final["finish_reason"] == "stop"


def test_stream_says_the_same_as_the_whole_answer(client):
    asked = [user("My name is Ada."), user("What is my name?")]
    response = ask(client, *asked, stream=True)
    assert response.headers["content-type"].startswith("text/event-stream")
    chunks = events(response)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks)
    whole = ask(client, *asked).json()
    assert text == whole["choices"][0]["message"]["content"] == "Your name is Ada."
    assert [c["choices"][0]["finish_reason"] for c in chunks][-1] == "stop"
    assert {c["id"] for c in chunks} == {whole["id"]}
    assert all("usage" not in chunk for chunk in chunks)


def test_streamed_tool_calls_and_usage(client):
    asked = user("What time is it in Paris and in New York?")
    options = {"stream_options": {"include_usage": True}, "tools": [CLOCK]}
    *chunks, last = events(ask(client, asked, stream=True, **options))
    calls: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        assert chunk["usage"] is None
        for piece in chunk["choices"][0]["delta"].get("tool_calls", ()):
            call = calls.setdefault(piece["index"], {**piece, "arguments": ""})
            call["arguments"] += piece["function"]["arguments"]
    assert [json.loads(call["arguments"])["city"] for call in calls.values()] == [
        "Paris",
        "New York",
    ]
    assert len({call["id"] for call in calls.values()}) == 2
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert last["choices"] == []
    assert last["usage"] == ask(client, asked, tools=[CLOCK]).json()["usage"]


def test_the_older_function_calls_are_understood(client):
    call = {"name": "clock", "arguments": "{}"}
    history = [
        user("What time is it?"),
        {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "clock", "content": "14:05"},
    ]
    message = ask(client, *history).json()["choices"][0]["message"]
    assert message["content"] == "clock answers: 14:05."


def test_limits(client):
    cut = ask(client, user("My name is Ada."), max_tokens=2).json()["choices"][0]
    assert (cut["message"]["content"], cut["finish_reason"]) == ("Nice to ", "length")
    stopped = ask(client, user("My name is Ada."), stop=[" meet"]).json()["choices"][0]
    assert (stopped["message"]["content"], stopped["finish_reason"]) == (
        "Nice to",
        "stop",
    )


CALLING = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "current_time", "arguments": "{}"},
        }
    ],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "14:05"}


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ("hello", "messages"),
        (["hello"], "messages.[0]"),
        ([{"role": "robot", "content": "x"}], "messages.[0].role"),
        ([{"role": "user", "content": None}], "messages.[0].content"),
        ([{"role": "assistant", "content": None}], "messages.[0].content"),
        ([{**CALLING, "tool_calls": [{}]}], "messages.[0].tool_calls"),
        ([user("x"), RESULT], "messages.[1].role"),
        ([CALLING, user("x")], "messages.[1].role"),
        ([CALLING], "messages"),
        ([CALLING, RESULT, RESULT], "messages.[2].role"),
    ],
)
def test_invalid_messages_are_refused(client, messages, param):
    body = {"model": "offline", "messages": messages}
    response = client.post("/chat/completions", json=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert error["message"]


@pytest.mark.parametrize(
    ("more", "status", "code", "param"),
    [
        ({"model": "gpt-9"}, 404, "model_not_found", "model"),
        ({"model": None}, 400, None, "model"),
        ({"n": 2}, 400, "unsupported_parameter", "n"),
        ({"logprobs": True}, 400, "unsupported_parameter", "logprobs"),
        ({"tools": [{"type": "function"}]}, 400, None, "tools.[0]"),
        ({"tools": "all"}, 400, None, "tools"),
        ({"max_tokens": "many"}, 400, None, None),
        ({"stop": [None]}, 400, None, "stop"),
        ({"stream_options": [1]}, 400, None, None),
    ],
)
def test_invalid_parameters_are_refused(client, more, status, code, param):
    response = ask(client, user("x"), **more)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (
        status,
        code,
        param,
    )


def test_bad_bodies_and_paths(client):
    path = "/chat/completions"
    assert client.post(path, content=b"{").status_code == 400
    assert client.post(path, content=b"[]").status_code == 400
    assert client.post(path, content=b"\xff").status_code == 400
    assert client.post(path, content=b"[" * 100_000).status_code == 400
    unmeasured = client.post(path, content=iter([b"{}"]))
    assert unmeasured.status_code == 411
    assert unmeasured.headers["connection"] == "close"
    assert client.post("/embeddings", json={}).status_code == 404
    assert client.get("/nothing").json()["error"]["code"] == "unknown_url"
    assert ask(client, user("Hello!")).status_code == 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "id", "function", "name", "type"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    body=st.fixed_dictionaries(
        {
            "model": st.just("offline"),
            "messages": st.just([user("What is 1+1?")]) | JSON,
        },
        optional=dict.fromkeys(
            ("tools", "tool_choice", "stop", "max_tokens", "n"), JSON
        ),
    )
)
def test_no_body_goes_without_an_answer(client, body):
    response = client.post("/chat/completions", json=body)
    assert response.status_code in (200, 400)
    assert ("error" in response.json()) == (response.status_code == 400)


def test_a_huge_body_is_refused_unread(client):
    address = (client.base_url.host, client.base_url.port)
    with socket.create_connection(address, timeout=5) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
            b"Content-Length: 1000000000\r\n\r\n"
        )
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_callers_side_by_side(client):
    def name(index: int) -> str:
        told = ask(client, user(f"My name is N{index}."), user("Who am I?")).json()
        return str(told["choices"][0]["message"]["content"])

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(name, range(32)))
    assert answers == [f"Your name is N{index}." for index in range(32)]


def test_a_reader_that_leaves_does_no_harm():
    with OfflineModel(delay=0.01) as model, httpx.Client() as client:
        url = f"{model.base_url}/chat/completions"
        body = {"model": "offline", "messages": [user("x")], "stream": True}
        for _ in range(3):
            with client.stream("POST", url, json=body) as response:
                next(response.iter_bytes())
        assert client.get(f"{model.base_url}/models").status_code == 200


def test_stop_frees_the_port():
    model = OfflineModel().start()
    port = int(model.base_url.split(":")[2].removesuffix("/v1"))
    model.stop()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=2)
