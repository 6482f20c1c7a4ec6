from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from convmem.chat import ReasoningDelta, RefusalDelta, TextDelta
from convmem.dialects.assembly import Assembly, deltas_of
from convmem.dialects.openai import StreamDecoder
from convmem.dialects.profiles import CUSTOM, GROQ, OPENAI
from convmem.exceptions import (
    ProviderBadResponse,
    ProviderError,
    ProviderRateLimited,
    ProviderUnavailable,
    StreamIncomplete,
)
from convmem.messages import (
    Message,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
    Usage,
)
from convmem.testing.model_server import chunk, sse, stream_events

DONE = sse("[DONE]")
STOP = sse(chunk({}, finish_reason="stop"))
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def text(*pieces: str) -> bytes:
    return b"".join(sse(chunk({"content": piece})) for piece in pieces)


def test_text_then_the_whole() -> None:
    decoder = StreamDecoder(OPENAI)
    assert decoder.feed(text("Hel", "", "lo")) == [
        TextDelta(text="Hel"),
        TextDelta(text="lo"),
    ]
    partial = decoder.partial()
    assert (partial.text, partial.finish_reason) == ("Hello", "interrupted")
    assert partial.message.status == "incomplete"
    assert not decoder.done
    assert decoder.feed(STOP + DONE) == []
    assert decoder.done
    completion = decoder.finish()
    assert completion.message == Message.assistant("Hello", model="scripted")
    assert completion.finish_reason == completion.raw_finish_reason == "stop"
    assert decoder.finish() is completion
    assert decoder.partial() is completion


def test_what_follows_the_terminal_event_is_ignored() -> None:
    decoder = StreamDecoder()
    decoder.feed(text("a") + STOP + DONE + text("b"))
    decoder.feed(sse({"error": "late"}) + b"garbage")
    assert decoder.finish().text == "a"


def test_reasoning_and_refusal() -> None:
    decoder = StreamDecoder(GROQ)
    deltas = decoder.feed(
        sse(chunk({"reasoning": "hm"}))
        + sse(chunk({"reasoning": "!", "content": "a"}))
        + sse(chunk({"refusal": "no"}))
        + STOP
        + DONE
    )
    assert deltas == [
        ReasoningDelta(text="hm"),
        ReasoningDelta(text="!"),
        TextDelta(text="a"),
        RefusalDelta(text="no"),
    ]
    assert decoder.finish().message.content == (
        ReasoningPart(text="hm!", producer="scripted", extra={"field": "reasoning"}),
        TextPart(text="a"),
        RefusalPart(text="no"),
    )


def test_content_as_a_list_of_parts() -> None:
    decoder = StreamDecoder()
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, 3]
    assert decoder.feed(sse(chunk({"content": parts}))) == [TextDelta(text="ab")]


# --- usage ---


@pytest.mark.parametrize(
    "events",
    [
        [chunk({"content": "a"}, usage=USAGE), chunk({}, finish_reason="stop")],
        [chunk({"content": "a"}), chunk({}, finish_reason="stop", usage=USAGE)],
        [
            chunk({"content": "a"}),
            chunk({}, finish_reason="stop"),
            chunk(None, usage=USAGE),
        ],
        [
            chunk(None, usage=USAGE),
            chunk({"content": "a"}),
            chunk({}, finish_reason="stop"),
        ],
        [
            chunk({"content": "a"}, usage={"prompt_tokens": 1, "completion_tokens": 1}),
            chunk({}, finish_reason="stop", usage=USAGE),
            chunk(None, usage=None),
            chunk(None, usage={}),
        ],
        [{**chunk({"content": "a"}), "x_groq": {"id": "r", "usage": USAGE}}],
    ],
    ids=["first", "finish", "own chunk", "before", "last non-null wins", "x_groq"],
)
def test_usage_wherever_it_comes(events: list[dict[str, Any]]) -> None:
    decoder = StreamDecoder()
    decoder.feed(b"".join(map(sse, events)) + DONE)
    usage = Usage(input_tokens=3, output_tokens=2, total_tokens=5)
    completion = decoder.finish()
    assert completion.usage == completion.message.usage == usage
    assert completion.text == "a"


def test_usage_of_a_broken_stream_is_in_the_partial() -> None:
    decoder = StreamDecoder()
    decoder.feed(text("a") + sse({**chunk(None, usage=USAGE), "error": "x"}))
    with pytest.raises(ProviderError) as caught:
        decoder.finish()
    partial = caught.value.partial
    assert partial is not None
    assert partial.usage == Usage(input_tokens=3, output_tokens=2, total_tokens=5)


# --- how it ends ---


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("length", "length"),
        ("MAX_TOKENS", "length"),
        ("content_filter", "content_filter"),
        ("banana", "unknown"),
        (None, "unknown"),
    ],
)
def test_finish_reasons(raw: str | None, expected: str) -> None:
    decoder = StreamDecoder()
    decoder.feed(text("a") + sse(chunk({}, finish_reason=raw)) + DONE)
    assert decoder.finish().finish_reason == expected
    assert decoder.finish().raw_finish_reason == raw


def test_an_end_before_the_terminal_event_is_incomplete() -> None:
    for data in (b"", b": ping\n\n", text("a"), text("a") + STOP):
        decoder = StreamDecoder()
        decoder.feed(data)
        with pytest.raises(StreamIncomplete) as caught:
            decoder.finish()
        assert caught.value.partial == decoder.partial()
        assert caught.value.retryable
        with pytest.raises(StreamIncomplete):
            decoder.finish()
    assert "terminal='finish_reason'" in caught.value.message


def test_a_server_that_never_sends_done() -> None:
    profile = CUSTOM.replace(terminal="finish_reason")
    decoder = StreamDecoder(profile)
    decoder.feed(text("a") + STOP)
    assert decoder.finish().text == "a"
    decoder = StreamDecoder(profile)
    decoder.feed(text("a"))
    with pytest.raises(StreamIncomplete):
        decoder.finish()


@pytest.mark.parametrize("tail", [b"data: [DONE]", b"data: [DONE]\n", b"data:[DONE]\r"])
def test_done_without_its_blank_line(tail: bytes) -> None:
    decoder = StreamDecoder()
    decoder.feed(text("a") + STOP + tail)
    assert decoder.finish().text == "a"


def test_a_last_event_without_its_blank_line_is_lost() -> None:
    decoder = StreamDecoder()
    decoder.feed(text("a") + text("b").rstrip())
    with pytest.raises(StreamIncomplete) as caught:
        decoder.finish()
    assert caught.value.partial is not None
    assert caught.value.partial.text == "a"


def test_an_error_as_the_unfinished_last_event_is_still_read() -> None:
    decoder = StreamDecoder()
    decoder.feed(text("a") + sse({"error": {"code": 429, "message": "m"}}).rstrip())
    with pytest.raises(ProviderRateLimited):
        decoder.finish()


def test_done_without_any_choice() -> None:
    decoder = StreamDecoder()
    decoder.feed(sse({"id": "x"}) + DONE)
    with pytest.raises(ProviderBadResponse, match="without any choice"):
        decoder.finish()


# --- errors inside ---


def test_deltas_before_an_error_are_handed_out_first() -> None:
    decoder = StreamDecoder()
    data = text("a") + sse({"error": {"type": "overloaded_error", "message": "busy"}})
    assert decoder.feed(data) == [TextDelta(text="a")]
    assert decoder.failed
    with pytest.raises(ProviderUnavailable, match="busy") as caught:
        decoder.feed(text("b"))
    assert caught.value.partial is not None
    assert caught.value.partial.text == "a"
    with pytest.raises(ProviderUnavailable):
        decoder.finish()


@pytest.mark.parametrize(
    "event",
    [
        sse({"error": {"message": "oh"}}),
        sse({"error": "oh"}),
        sse({"error": {"message": "oh"}, "choices": [{"delta": {"content": "x"}}]}),
        sse({"message": "oh"}, event="error"),
        sse("oh", event="error"),
        sse({"choices": [{"index": 0, "error": {"message": "oh"}}]}),
    ],
    ids=["object", "text", "beside choices", "flat event", "plain event", "choice"],
)
def test_shapes_of_errors_inside(event: bytes) -> None:
    decoder = StreamDecoder()
    with pytest.raises(ProviderUnavailable, match="oh"):
        decoder.feed(event)


def test_a_null_error_is_none() -> None:
    decoder = StreamDecoder()
    decoder.feed(sse({**chunk({"content": "a"}), "error": None}) + STOP + DONE)
    assert decoder.finish().text == "a"


@pytest.mark.parametrize("data", ["{", "[1]", "null", "3", "hello"])
def test_an_event_that_is_no_object(data: str) -> None:
    decoder = StreamDecoder()
    with pytest.raises(ProviderBadResponse, match="no JSON object"):
        decoder.feed(sse(data))


def test_a_plain_json_answer_in_place_of_a_stream() -> None:
    message = {"role": "assistant", "content": "whole"}
    body = json.dumps({"id": "i", "choices": [{"message": message}]}).encode()
    decoder = StreamDecoder()
    for at in range(len(body)):
        assert decoder.feed(body[at : at + 1]) == []
    assert decoder.finish().text == "whole"
    assert decoder.partial().text == "whole"


def test_a_plain_json_error_in_place_of_a_stream() -> None:
    decoder = StreamDecoder()
    decoder.feed(b'{"error": {"message": "no", "code": 429}}')
    with pytest.raises(ProviderRateLimited) as caught:
        decoder.finish()
    assert caught.value.partial is not None
    decoder = StreamDecoder()
    decoder.feed(b"<html>oops</html>")
    with pytest.raises(ProviderBadResponse, match="oops"):
        decoder.finish()


# --- several choices, other facts ---


def test_other_choices_are_kept_aside() -> None:
    decoder = StreamDecoder()
    events = []
    for index, word in ((0, "a"), (1, "x"), (0, "b"), (1, "y")):
        event = chunk({"content": word})
        event["choices"][0]["index"] = index
        events.append(event)
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    events[-1]["choices"][0]["delta"]["tool_calls"] = [call]
    deltas = decoder.feed(b"".join(map(sse, events)) + STOP + DONE)
    assert deltas == [TextDelta(text="a"), TextDelta(text="b")]
    completion = decoder.finish()
    assert completion.text == "ab"
    (other,) = completion.extra["choices"]
    assert (other["index"], other["message"]["content"]) == (1, "xy")
    assert other["message"]["tool_calls"][0]["function"]["name"] == "f"


def test_other_facts_are_kept() -> None:
    first = chunk(
        {"content": "a", "annotations": [1], "extra_content": {"g": {"a": 1}}}
    )
    first["choices"][0]["logprobs"] = {"content": [{"token": "a"}]}
    second = chunk(
        {"content": "b", "annotations": [2], "extra_content": {"g": {"b": 2}}}
    )
    second["choices"][0]["logprobs"] = {"content": [{"token": "b"}]}
    second["system_fingerprint"] = "fp"
    decoder = StreamDecoder()
    decoder.feed(sse(first))
    early = decoder.partial()
    decoder.feed(sse(second) + STOP + DONE)
    completion = decoder.finish()
    assert completion.extra["logprobs"] == {"content": [{"token": "a"}, {"token": "b"}]}
    assert completion.extra["system_fingerprint"] == "fp"
    assert completion.message.metadata == {
        "wire": {"annotations": [1, 2], "extra_content": {"g": {"a": 1, "b": 2}}}
    }
    assert early.message.metadata["wire"]["annotations"] == [1]


# --- any message, any cut, any bytes ---

words = st.text(max_size=12)
calls = st.lists(
    st.builds(
        ToolCall,
        id=st.uuids().map(str),
        name=st.sampled_from(["add", "now"]),
        arguments=words,
    ),
    max_size=3,
).map(tuple)


@hypothesis_settings(max_examples=80, deadline=None)
@given(
    st.text(max_size=40),
    calls,
    st.lists(st.integers(0, 3000), max_size=8),
    st.integers(1, 5),
)
@example("a\u2028b\u0085c\u2029é😀", (), [40], 1)
def test_any_answer_in_any_pieces(
    answer: str, tool_calls: tuple[ToolCall, ...], cuts: list[int], size: int
) -> None:
    message = Message.assistant(
        answer or (None if tool_calls else ""), tool_calls=tool_calls
    )
    data = b"".join(map(sse, stream_events(message, size=size))) + DONE
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    decoder = StreamDecoder()
    assembly = Assembly()
    for start, end in zip(places, places[1:], strict=False):
        for delta in decoder.feed(data[start:end]):
            assembly.add(delta)
    got = decoder.finish().message
    assert (got.content, got.tool_calls) == (message.content, message.tool_calls)
    again = assembly.completion(whole=True).message
    assert (again.content, again.tool_calls) == (got.content, got.tool_calls)


@hypothesis_settings(max_examples=60, deadline=None)
@given(words, words, words, calls, st.integers(0, 3))
def test_deltas_of_a_message_make_it_again(
    thought: str, answer: str, refusal: str, tool_calls: Any, size: int
) -> None:
    parts = [
        ReasoningPart(text=thought),
        TextPart(text=answer),
        RefusalPart(text=refusal),
    ]
    content = tuple(part for part in parts if part.text)
    message = Message.assistant(content, tool_calls=tool_calls)
    assembly = Assembly()
    for delta in deltas_of(message, size=size):
        assembly.add(delta)
    again = assembly.completion(whole=True).message
    assert [part for part in again.parts if part.text] == list(content)
    assert again.tool_calls == tool_calls


pieces = st.one_of(
    st.binary(max_size=30),
    st.sampled_from(
        [
            b"data: ",
            b"event: error\n",
            b"\n\n",
            b"\r",
            b"data: [DONE]\n\n",
            sse(chunk({"tool_calls": [{"index": 0}]})),
            sse(chunk({"tool_calls": [{"function": {"arguments": [1]}}]})),
            sse(chunk({"content": [1, {"text": 2}]}, finish_reason=[])),
            sse({"choices": {"a": 1}, "usage": {"prompt_tokens": "3"}}),
            sse({"choices": [{"index": "x"}], "usage": []}),
            sse({"error": [{"error": {"code": True}}]}),
            sse({"choices": [{"delta": {"content": "a"}, "logprobs": [1]}]}),
            sse({"choices": [{"delta": {}, "logprobs": {"content": 1}}]}),
        ]
    ),
)


@hypothesis_settings(max_examples=100, deadline=None)
@given(st.lists(pieces, max_size=12))
def test_any_bytes_raise_only_our_errors(data: list[bytes]) -> None:
    decoder = StreamDecoder()
    try:
        for piece in data:
            decoder.feed(piece)
        decoder.finish()
    except ProviderError as error:
        assert error.partial is not None
    assert decoder.partial() is not None


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "message",
                    "content",
                    "tool_calls",
                    "function",
                    "function_call",
                    "name",
                    "arguments",
                    "id",
                    "type",
                    "index",
                    "finish_reason",
                    "usage",
                    "x_groq",
                    "error",
                    "model",
                    "reasoning",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@hypothesis_settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"choices": st.lists(st.fixed_dictionaries({"delta": values}), max_size=2)}
        )
        | values,
        max_size=4,
    )
)
def test_any_chunks_raise_only_our_errors(chunks: list[Any]) -> None:
    decoder = StreamDecoder()
    try:
        for value in chunks:
            decoder.feed(sse(json.dumps(value)))
        decoder.feed(DONE)
        decoder.finish()
    except ProviderError as error:
        assert error.partial is not None
