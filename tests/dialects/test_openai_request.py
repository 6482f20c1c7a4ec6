from __future__ import annotations

import json

import pytest

from convmem.chat import ChatRequest, ToolSpec
from convmem.dialects.openai import dropped_parameters, encode_request
from convmem.dialects.profiles import (
    CUSTOM,
    GROQ,
    NVIDIA,
    OLLAMA,
    OPENAI,
    PROFILES,
    get_profile,
)
from convmem.dialects.wirejson import dumps, loads
from convmem.exceptions import BadInput, ConfigurationError
from convmem.messages import Message

HELLO = (Message.user("Hi"),)
TOOL = ToolSpec(
    name="add",
    description="Adds.",
    parameters={"type": "object", "properties": {"a": {"type": "integer"}}},
    strict=True,
)
FULL = ChatRequest(
    messages=HELLO,
    model="m",
    tools=(TOOL, ToolSpec(name="now")),
    tool_choice="auto",
    parallel_tool_calls=False,
    temperature=0.0,
    top_p=0.9,
    max_output_tokens=50,
    stop=("a", "b"),
    seed=0,
    response_format={"type": "json_object"},
    options={"reasoning_effort": "low", "logprobs": True, "n": 2},
    request_id="run 1/ü",
)


def test_the_least_request() -> None:
    request = ChatRequest(messages=HELLO, model="m")
    assert encode_request(request, OPENAI) == (
        "/chat/completions",
        {"Content-Type": "application/json", "Accept": "application/json"},
        {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    )


def test_everything_a_request_can_say() -> None:
    _, headers, body = encode_request(FULL, OPENAI)
    assert headers["X-Client-Request-Id"] == headers["Idempotency-Key"]
    assert headers["Idempotency-Key"] == "run%201/%C3%BC"
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "add",
                    "description": "Adds.",
                    "parameters": TOOL.parameters,
                    "strict": True,
                },
            },
            {
                "type": "function",
                "function": {
                    "name": "now",
                    "description": "",
                    "parameters": {"type": "object", "properties": {}},
                },
            },
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "temperature": 0.0,
        "top_p": 0.9,
        "max_completion_tokens": 50,
        "stop": ["a", "b"],
        "seed": 0,
        "response_format": {"type": "json_object"},
        "reasoning_effort": "low",
        "logprobs": True,
        "n": 2,
    }
    assert dropped_parameters(FULL, OPENAI) == []


def test_a_streamed_request_asks_for_usage() -> None:
    _, headers, body = encode_request(FULL, OPENAI, stream=True)
    assert headers["Accept"] == "text/event-stream"
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    options = {"stream_options": {"include_obfuscation": False}}
    request = ChatRequest(messages=HELLO, model="m", options=options)
    _, _, body = encode_request(request, OPENAI, stream=True)
    assert body["stream_options"] == {
        "include_obfuscation": False,
        "include_usage": True,
    }
    assert options == {"stream_options": {"include_obfuscation": False}}
    quiet = CUSTOM.replace(stream_usage=False)
    plain = ChatRequest(messages=HELLO, model="m")
    assert "stream_options" not in encode_request(plain, quiet, stream=True)[2]


@pytest.mark.parametrize(
    ("profile", "name"),
    [
        (OPENAI, "max_completion_tokens"),
        (GROQ, "max_completion_tokens"),
        (CUSTOM, "max_tokens"),
        (OLLAMA, "max_tokens"),
        (NVIDIA, "max_tokens"),
    ],
)
@pytest.mark.parametrize("option", ["max_tokens", "max_completion_tokens"])
def test_the_output_limit_has_the_providers_name(
    profile: object, name: str, option: str
) -> None:
    assert isinstance(profile, type(OPENAI))
    named = ChatRequest(messages=HELLO, model="m", max_output_tokens=5)
    assert encode_request(named, profile)[2][name] == 5
    by_option = ChatRequest(messages=HELLO, model="m", options={option: 6})
    assert encode_request(by_option, profile)[2][name] == 6
    both = ChatRequest(
        messages=HELLO, model="m", max_output_tokens=5, options={option: 6}
    )
    assert encode_request(both, profile)[2][name] == 5


def test_what_a_provider_refuses_is_left_out_and_reported() -> None:
    body = encode_request(FULL, GROQ)[2]
    assert {"logprobs", "n"}.isdisjoint(body)
    assert dropped_parameters(FULL, GROQ) == ["logprobs", "n"]
    body = encode_request(FULL, NVIDIA)[2]
    assert set(body) == {
        "model",
        "messages",
        "tools",
        "tool_choice",
        "temperature",
        "top_p",
        "max_tokens",
        "stop",
        "seed",
        "response_format",
    }
    assert dropped_parameters(FULL, NVIDIA) == [
        "reasoning_effort",
        "logprobs",
        "n",
        "parallel_tool_calls",
    ]
    ollama = ChatRequest(messages=HELLO, model="m", options={"num_ctx": 8192})
    assert dropped_parameters(ollama, OLLAMA) == ["num_ctx"]


def test_names_are_reported_where_they_are_left_out() -> None:
    request = ChatRequest(messages=(Message.user("a", name="ann"),), model="m")
    assert dropped_parameters(request, GROQ) == ["messages[].name"]
    assert encode_request(request, GROQ)[2]["messages"] == [
        {"role": "user", "content": "a"}
    ]
    assert encode_request(request, OPENAI)[2]["messages"][0]["name"] == "ann"


def test_extra_body_is_sent_as_it_is() -> None:
    options = {"extra_body": {"nvext": {"a": 1}, "max_completion_tokens": 3, "n": 4}}
    request = ChatRequest(messages=HELLO, model="m", options=options)
    body = encode_request(request, NVIDIA)[2]
    assert body["nvext"] == {"a": 1}
    assert body["max_completion_tokens"] == 3
    assert "extra_body" not in body


def test_options_cannot_replace_the_conversation() -> None:
    options = {"messages": [], "model": "other", "stream": True}
    request = ChatRequest(messages=HELLO, model="m", options=options)
    body = encode_request(request, OPENAI)[2]
    assert body == {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def test_tool_settings_go_only_with_tools() -> None:
    request = ChatRequest(
        messages=HELLO, model="m", tool_choice="required", parallel_tool_calls=True
    )
    assert set(encode_request(request, OPENAI)[2]) == {"model", "messages"}


def test_a_request_needs_a_model() -> None:
    with pytest.raises(BadInput, match="model is empty"):
        encode_request(ChatRequest(messages=HELLO), OPENAI)


# --- profiles ---


def test_profiles_by_name() -> None:
    assert set(PROFILES) == {"openai", "custom", "ollama", "groq", "nvidia"}
    assert get_profile("groq") is GROQ
    changed = get_profile("nvidia", parameters=["model"], reasoning_fields=["x"])
    assert changed.parameters == frozenset({"model"})
    assert changed.reasoning_fields == ("x",)
    assert NVIDIA.reasoning_fields != ("x",)
    with pytest.raises(ConfigurationError, match="Unknown provider 'opnai'"):
        get_profile("opnai")
    with pytest.raises(ConfigurationError, match="no value 'colour'"):
        get_profile("openai", colour="red")


# --- JSON as it goes out and comes in ---


def test_json_tolerance() -> None:
    assert loads(b'\xef\xbb\xbf {"a": NaN, "b": 1e999}') == {"a": None, "b": None}
    assert loads('"\\ud83d\\ude00 \\ud83d"') == "😀 \ufffd"
    assert loads(b'"\xff"') == "\ufffd"
    for broken in ("", "{", "[" * 100_000, "x", b"\xff\xfe"):
        with pytest.raises(ValueError):
            loads(broken)


def test_json_that_no_header_or_server_can_trip_over() -> None:
    value = {"a": "\ud83d", "b": [float("nan"), "é\u2028"], "c": {"\ud83d": 1}}
    assert json.loads(dumps(value)) == {
        "a": "\ufffd",
        "b": [None, "é\u2028"],
        "c": {"\ufffd": 1},
    }
