from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from convmem.dialects.openai import (
    LOSSLESS,
    decode_message,
    decode_usage,
    encode_message,
    encode_usage,
)
from convmem.dialects.profiles import CUSTOM, GROQ, NVIDIA, OLLAMA, OPENAI
from convmem.exceptions import InvalidMessage
from convmem.messages import (
    AudioPart,
    FilePart,
    ImagePart,
    Message,
    OpaquePart,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
    Usage,
    VideoPart,
    decode,
    encode,
)

CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "add", "arguments": '{"a": 1}'},
}


@pytest.mark.parametrize(
    ("wire", "part"),
    [
        ({"type": "text", "text": "a"}, TextPart(text="a")),
        (
            {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
            TextPart(text="a", extra={"cache_control": {"type": "ephemeral"}}),
        ),
        (
            {"type": "image_url", "image_url": {"url": "https://x/", "detail": "low"}},
            ImagePart(url="https://x/", detail="low"),
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "AAA=", "format": "wav"}},
            AudioPart(data="AAA=", format="wav"),
        ),
        (
            {"type": "audio_url", "audio_url": {"url": "https://x/a"}},
            AudioPart(url="https://x/a"),
        ),
        (
            {"type": "video_url", "video_url": {"url": "https://x/v"}},
            VideoPart(url="https://x/v"),
        ),
        ({"type": "file", "file": {"file_id": "f1"}}, FilePart(file_id="f1")),
        (
            {"type": "file", "file": {"file_data": "AAA=", "filename": "a.pdf"}},
            FilePart(data="AAA=", filename="a.pdf"),
        ),
        (
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAA="}},
            FilePart(url="data:application/pdf;base64,AAA="),
        ),
        ({"type": "refusal", "refusal": "no"}, RefusalPart(text="no")),
        (
            {"type": "thinking", "thinking": ["x"]},
            OpaquePart(data={"type": "thinking", "thinking": ["x"]}),
        ),
        ({"no": "type"}, OpaquePart(data={"no": "type"})),
        ({"type": "text", "text": 1}, OpaquePart(data={"type": "text", "text": 1})),
        (
            {"type": "image_url", "image_url": {"url": "u", "odd": "x"}},
            OpaquePart(
                data={"type": "image_url", "image_url": {"url": "u", "odd": "x"}}
            ),
        ),
        (17, OpaquePart(data=17)),
    ],
)
def test_parts_there_and_back(wire: Any, part: Any) -> None:
    message = decode_message({"role": "user", "content": [wire]})
    assert message.content == (part,)
    assert encode_message(message) == {"role": "user", "content": [wire]}
    assert decode(encode(message)) == message


@pytest.mark.parametrize(
    "wire",
    [
        {"type": "refusal", "refusal": None},
        {"type": "image_url", "image_url": {"detail": "low"}},
        {"type": "input_audio", "input_audio": "x"},
        {"type": "audio_url", "audio_url": {"url": 1}},
        {"type": "video_url"},
        {"type": "file", "file": {"filename": "a"}},
    ],
)
def test_a_known_type_of_another_shape_is_kept_as_it_is(wire: Any) -> None:
    message = decode_message({"role": "user", "content": [wire]})
    assert message.content == (OpaquePart(data=wire),)
    assert encode_message(message)["content"] == [wire]


def test_loose_part_shapes_are_normalised() -> None:
    message = decode_message(
        {"role": "user", "content": ["a", {"type": "image_url", "image_url": "u"}]}
    )
    assert message.content == (TextPart(text="a"), ImagePart(url="u"))


def test_media_that_did_not_come_from_this_wire() -> None:
    message = Message.user(
        (
            ImagePart(data="AAA=", media_type="image/gif"),
            ImagePart(file_id="f2"),
            AudioPart(data="BBB=", media_type="audio/mpeg"),
            AudioPart(data="CCC=", media_type="audio/flac"),
            VideoPart(data="DDD="),
            FilePart(data="EEE=", media_type="application/pdf", filename="e.pdf"),
        )
    )
    assert [list(part.values())[1] for part in encode_message(message)["content"]] == [
        {"url": "data:image/gif;base64,AAA="},
        {"file_id": "f2"},
        {"data": "BBB=", "format": "mp3"},
        {"data": "CCC=", "format": "flac"},
        {"url": "data:video/mp4;base64,DDD="},
        {"file_data": "data:application/pdf;base64,EEE=", "filename": "e.pdf"},
    ]


@pytest.mark.parametrize(
    "wire",
    [
        {"role": "system", "content": "s", "name": "n"},
        {"role": "developer", "content": [{"type": "text", "text": "a"}]},
        {"role": "user", "content": ""},
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {
            "role": "assistant",
            "content": "a",
            "tool_calls": [CALL, {**CALL, "index": 1}],
        },
        {"role": "assistant", "content": "4", "reasoning": "2+2"},
        {"role": "assistant", "content": "4", "reasoning_content": "2+2"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "a"},
                {"type": "refusal", "refusal": "b"},
            ],
            "annotations": [{"type": "url_citation"}],
            "extra_content": {"google": {"thought_signature": "AA=="}},
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "3"},
        {
            "role": "tool",
            "tool_call_id": "call_1",
            "content": [{"type": "text", "text": "3"}],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c", "type": "custom", "custom": {"name": "n", "input": "free"}}
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "function_call": {"name": "old", "arguments": "{}"},
        },
        {"role": "function", "name": "old", "content": "3"},
    ],
)
def test_messages_there_and_back(wire: dict[str, Any]) -> None:
    message = decode_message(wire)
    assert encode_message(message) == wire
    assert decode(encode(message)) == message


def test_the_legacy_pair_has_one_id() -> None:
    call = decode_message(
        {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}
    )
    result = decode_message({"role": "function", "name": "f", "content": "1"})
    assert call.tool_calls[0].id == result.tool_call_id


def test_a_refusal_beside_the_content_becomes_a_part() -> None:
    message = decode_message({"role": "assistant", "content": None, "refusal": "no"})
    assert message.content == (RefusalPart(text="no"),)
    assert message.text == "no"
    both = decode_message({"role": "assistant", "content": "a", "refusal": "no"})
    assert both.content == (TextPart(text="a"), RefusalPart(text="no"))


def test_null_and_empty_fields_go() -> None:
    message = decode_message(
        {
            "role": "user",
            "content": "a",
            "tool_calls": None,
            "name": None,
            "annotations": [],
            "audio": None,
        }
    )
    assert message == Message.user("a")


def test_an_empty_list_as_content_is_none() -> None:
    assert decode_message({"role": "user", "content": []}) == Message.user("")
    calling = {"role": "assistant", "content": [], "tool_calls": [CALL]}
    assert decode_message(calling).content is None


def test_calls_without_id_get_a_stable_one() -> None:
    wire = {
        "role": "assistant",
        "tool_calls": [{**CALL, "id": ""}, {**CALL, "id": None}],
    }
    first, second = decode_message(wire, seed="chat-1").tool_calls
    assert first.id.startswith("call_")
    assert first.id != second.id
    assert decode_message(wire, seed="chat-1").tool_calls == (first, second)
    assert decode_message(wire, seed="chat-2").tool_calls[0].id != first.id


def test_arguments_as_an_object_or_null_become_text() -> None:
    calls = [
        {"id": "a", "function": {"name": "f", "arguments": {"x": 1}}},
        {"id": "b", "function": {"name": "f", "arguments": None}},
        {"id": 7, "function": {"name": "f"}},
    ]
    message = decode_message({"role": "assistant", "tool_calls": calls})
    assert [c.arguments for c in message.tool_calls] == ['{"x":1}', "", ""]
    assert message.tool_calls[2].id == "7"


@pytest.mark.parametrize(
    ("wire", "field"),
    [
        ("text", None),
        ({"content": "a"}, "role"),
        ({"role": "robot", "content": "a"}, "role"),
        ({"role": "user", "content": 5}, "content"),
        ({"role": "user", "content": {"a": 1}}, "content"),
        ({"role": "user", "content": "a", "name": 5}, "name"),
        ({"role": "user", "content": "a", "tool_calls": [CALL]}, "tool_calls"),
        ({"role": "assistant", "tool_calls": "x"}, "tool_calls"),
        ({"role": "assistant", "tool_calls": ["x"]}, "tool_calls"),
        ({"role": "assistant", "tool_calls": [{"id": "a"}]}, "tool_calls"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "tool_calls"),
        ({"role": "tool", "content": "a"}, "tool_call_id"),
        ({"role": "tool", "content": "a", "tool_call_id": 4}, "tool_call_id"),
    ],
)
def test_what_is_no_message(wire: Any, field: str | None) -> None:
    with pytest.raises(InvalidMessage) as caught:
        decode_message(wire, index=3)
    assert caught.value.message.startswith("Message 3")
    assert caught.value.details == {"index": 3, "field": field}


# --- for a provider ---

ANSWER = Message.assistant(
    (ReasoningPart(text="hm", extra={"field": "reasoning"}), TextPart(text="4")),
    metadata={"wire": {"annotations": [1], "extra_content": {"g": 1}}, "mine": 2},
)
CALLING = Message.assistant(
    tool_calls=(ToolCall(id="c", name="now", extra={"index": 0}),)
)


def test_reasoning_goes_back_only_where_it_is_known_to_be_taken() -> None:
    assert encode_message(ANSWER, OPENAI) == {"role": "assistant", "content": "4"}
    assert encode_message(ANSWER, GROQ) == {"role": "assistant", "content": "4"}
    assert encode_message(ANSWER, OLLAMA) == {
        "role": "assistant",
        "content": "4",
        "reasoning": "hm",
    }


def test_unknown_fields_go_back_only_where_they_are_allowed() -> None:
    wire = encode_message(ANSWER, CUSTOM)
    assert wire == {"role": "assistant", "content": "4", "extra_content": {"g": 1}}
    assert "index" not in encode_message(CALLING, CUSTOM)["tool_calls"][0]
    assert encode_message(CALLING, LOSSLESS)["tool_calls"][0]["index"] == 0


def test_null_content_beside_calls_and_empty_arguments() -> None:
    assert encode_message(CALLING, OPENAI)["content"] is None
    assert encode_message(CALLING, NVIDIA)["content"] == ""
    assert "content" not in encode_message(CALLING, OPENAI.replace(null_content="omit"))
    function = encode_message(CALLING, OPENAI)["tool_calls"][0]["function"]
    assert function == {"name": "now", "arguments": "{}"}


def test_reasoning_alone_beside_calls() -> None:
    message = CALLING.replace(content=(ReasoningPart(text="hm"),))
    assert encode_message(message, OPENAI)["content"] is None
    assert encode_message(message, OLLAMA)["reasoning"] == "hm"
    alone = Message.assistant((ReasoningPart(text="hm"),))
    assert encode_message(alone, OPENAI) == {"role": "assistant", "content": ""}


def test_developer_and_names() -> None:
    message = Message(role="developer", content="d", name="n")
    assert encode_message(message, OPENAI) == {
        "role": "developer",
        "content": "d",
        "name": "n",
    }
    assert encode_message(message, GROQ) == {"role": "system", "content": "d"}


def test_a_refusal_is_text_where_the_part_is_not_known() -> None:
    message = Message.assistant((RefusalPart(text="no"),))
    assert encode_message(message, OPENAI)["content"] == [
        {"type": "refusal", "refusal": "no"}
    ]
    assert encode_message(message, GROQ)["content"] == [{"type": "text", "text": "no"}]


# --- usage ---


def test_usage_of_many_providers() -> None:
    assert decode_usage(
        {
            "prompt_tokens": 10,
            "completion_tokens": 5.0,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 3},
            "cost": 0.1,
        }
    ) == Usage(
        input_tokens=10,
        output_tokens=5,
        total_tokens=15,
        cached_tokens=4,
        reasoning_tokens=3,
        extra={
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 3},
            "cost": 0.1,
        },
    )
    deepseek = decode_usage({"prompt_tokens": 1, "prompt_cache_hit_tokens": 0})
    assert deepseek is not None
    assert (deepseek.cached_tokens, deepseek.output_tokens) == (0, None)


@pytest.mark.parametrize("wire", [None, {}, [], "x", 3])
def test_no_usage(wire: Any) -> None:
    assert decode_usage(wire) is None


counts = st.none() | st.integers(0, 10**6)


@hypothesis_settings(max_examples=60, deadline=None)
@given(counts, counts, counts, counts, counts)
def test_usage_there_and_back(
    a: int | None, b: int | None, c: int | None, d: int | None, e: int | None
) -> None:
    usage = Usage(
        input_tokens=a,
        output_tokens=b,
        total_tokens=c,
        cached_tokens=d,
        reasoning_tokens=e,
    )
    again = decode_usage(encode_usage(usage)) or Usage()
    for name in ("input", "output", "total", "cached", "reasoning"):
        field = f"{name}_tokens"
        assert getattr(again, field) == getattr(usage, field)


# --- round trips of any message ---

texts = st.text(max_size=20)
extras = st.dictionaries(st.sampled_from(["cache_control", "odd"]), texts, max_size=2)
parts = st.one_of(
    st.builds(TextPart, text=texts, extra=extras),
    st.builds(
        ImagePart,
        url=texts,
        detail=st.none() | st.sampled_from(["low", "high"]),
        extra=extras,
    ),
    st.builds(AudioPart, data=texts, format=st.none() | texts, extra=extras),
    st.builds(VideoPart, url=texts),
    st.builds(FilePart, file_id=texts, filename=st.none() | texts),
    st.builds(RefusalPart, text=texts),
    st.builds(
        OpaquePart,
        data=st.fixed_dictionaries({"type": st.just("odd"), "x": texts}),
    ),
)
contents = texts | st.lists(parts, min_size=1, max_size=4).map(tuple)
calls = st.builds(
    ToolCall,
    id=st.text(min_size=1, max_size=5),
    name=texts,
    arguments=texts,
    kind=st.sampled_from(["function", "custom"]),
    extra=st.dictionaries(st.just("index"), st.integers(0, 9)),
)
wire_extras = st.dictionaries(
    st.just("wire"),
    st.dictionaries(st.just("extra_content"), texts, min_size=1, max_size=1),
)
messages = st.one_of(
    st.builds(
        Message,
        role=st.sampled_from(["system", "developer", "user"]),
        content=contents,
        name=st.none() | texts,
    ),
    st.builds(
        Message,
        role=st.just("assistant"),
        content=contents,
        tool_calls=st.lists(calls, max_size=3).map(tuple),
        metadata=wire_extras,
    ),
    st.builds(
        Message,
        role=st.just("assistant"),
        content=st.none(),
        tool_calls=st.lists(calls, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(
        Message,
        role=st.just("tool"),
        content=contents,
        tool_call_id=st.text(alphabet="abc", min_size=1, max_size=5),
    ),
)


@hypothesis_settings(max_examples=100, deadline=None)
@given(messages)
def test_any_message_there_and_back(message: Message) -> None:
    assert decode_message(encode_message(message)) == message


@hypothesis_settings(max_examples=60, deadline=None)
@given(messages, st.sampled_from([OPENAI, CUSTOM, OLLAMA, GROQ, NVIDIA]))
def test_what_a_provider_gets_has_the_same_text_and_calls(
    message: Message, profile: Any
) -> None:
    again = decode_message(encode_message(message, profile))
    assert again.text == message.text or message.refusal
    assert [c.name for c in again.tool_calls] == [c.name for c in message.tool_calls]
    assert [c.id for c in again.tool_calls] == [c.id for c in message.tool_calls]
