"""Messages are frozen values with a lossless JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from django.utils.safestring import mark_safe
from hypothesis import given, settings
from hypothesis import strategies as st

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
    to_dict,
)
from convmem.validation import as_message, storable

MEBI = 1024 * 1024

# --- what real systems produce ---

SHAPES = {
    "text": Message.user("Hello"),
    "empty text": Message.user(""),
    "named user": Message.user("Hello", name="Ada"),
    "system": Message.system("Be brief."),
    "developer in parts": Message(role="developer", content=(TextPart(text="A"),)),
    "image by url": Message.user(
        (TextPart(text="See"), ImagePart(url="https://x.test/a.png", detail="low"))
    ),
    "image inline": Message.user((ImagePart(data="aGk=", media_type="image/png"),)),
    "audio": Message.user((AudioPart(data="aGk=", format="wav"),)),
    "video": Message.user((VideoPart(url="file:v.mp4", media_type="video/mp4"),)),
    "file by id": Message.user((FilePart(file_id="file-1", filename="a.pdf"),)),
    "no content": Message.assistant(),
    "parallel calls": Message.assistant(
        tool_calls=(
            ToolCall(id="call_1", name="add", arguments='{"a": 1, "b": 1e2}'),
            ToolCall(id="call_2", name="add", arguments=""),
            ToolCall(id="call_3", name="sql", arguments="{broken", kind="custom"),
        )
    ),
    "call with a signature": Message.assistant(
        tool_calls=(ToolCall(id="1", name="f", extra={"thought_signature": "aGk="}),)
    ),
    "result": Message.tool("call_1", "2"),
    "failed result": Message.tool("call_1", "no such row", is_error=True),
    "result in parts": Message.tool("call_1", (ImagePart(data="aGk="),)),
    "thinking": Message.assistant(
        (
            ReasoningPart(text="Hm.", signature="c2ln", producer="claude"),
            ReasoningPart(redacted="b3BhcXVl"),
            TextPart(text="Yes."),
        )
    ),
    "refusal": Message.assistant((RefusalPart(text="I cannot."),)),
    "unknown part": Message.user((OpaquePart(data={"type": "hologram", "n": [1]}),)),
    "annotations": Message.assistant((TextPart(text="See", extra={"annot": [1]}),)),
    "usage": Message.assistant(
        "Hi",
        usage=Usage(input_tokens=3, output_tokens=0, extra={"cost": 0.1}),
        model="gpt-5",
    ),
    "metadata": Message.user("Hi", metadata={"a": {"b": [None, True, 1.5, "x"]}}),
    "partial": Message.assistant("Hel", status="incomplete"),
    "replacement": Message.assistant("Hi", supersedes=(4, 5)),
    "time": Message.user("Hi", created_at=datetime(2025, 1, 2, 3, 4, 5, 6, UTC)),
}


@pytest.mark.parametrize("message", SHAPES.values(), ids=SHAPES.keys())
def test_every_shape_survives_json(message):
    text = encode(message)
    assert decode(text) == message
    assert decode(text.encode()) == message
    assert json.loads(text)["role"] == message.role


@pytest.mark.parametrize("message", SHAPES.values(), ids=SHAPES.keys())
def test_every_shape_survives_plain_types(message):
    plain = to_dict(message)
    assert json.loads(json.dumps(plain)) == plain
    assert as_message(plain) == message


@pytest.mark.parametrize("message", SHAPES.values(), ids=SHAPES.keys())
def test_every_shape_can_be_stored(message):
    stored, body = storable(message, max_bytes=MEBI)
    assert stored == message
    assert body == encode(message)


def test_defaults_are_left_out():
    assert encode(Message.user("Hi")) == '{"role":"user","content":"Hi"}'


def test_position_is_not_part_of_the_json_but_of_plain_types():
    message = Message.user("Hi", position=7)
    assert decode(encode(message)).position is None
    assert message.position == 7
    assert to_dict(message)["position"] == 7


def test_arguments_are_kept_to_the_byte():
    raw = '{"b":1e2,\n "a" : 100.0, "a":1}'
    call = ToolCall(id="1", name="f", arguments=raw)
    (kept,) = decode(encode(Message.assistant(tool_calls=(call,)))).tool_calls
    assert kept.arguments == raw


def test_order_of_keys_is_kept():
    message = Message.user("x", metadata={"b": 1, "a": 2, "0": 3})
    assert list(decode(encode(message)).metadata) == ["b", "a", "0"]


@pytest.mark.parametrize(
    "number", [2**53 + 1, 2**64, -(2**63) - 1, 10**40, 1e22, 5e-324, -0.0, 0.1]
)
def test_numbers_are_exact(number):
    kept = decode(encode(Message.user("x", metadata={"n": number}))).metadata["n"]
    assert (type(kept), repr(kept)) == (type(number), repr(number))


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", '"x"', "{", '{"role":"user","content":5}', '{"role":"robot"}'],
)
def test_what_is_no_message_is_refused(text):
    with pytest.raises(InvalidMessage, match="Not the JSON of a message"):
        decode(text)


def test_json_nested_too_deep_is_refused():
    nested = "[" * 100_000 + "]" * 100_000
    with pytest.raises(InvalidMessage, match="recursion"):
        decode(f'{{"role":"user","content":"x","metadata":{{"a":{nested}}}}}')


def test_bytes_that_are_not_utf8_are_refused():
    with pytest.raises(InvalidMessage):
        decode(b'{"role":"user","content":"\xff"}')


def test_values_are_frozen():
    with pytest.raises(AttributeError):
        Message.user("Hi").content = "Ho"
    with pytest.raises(AttributeError):
        TextPart(text="Hi").text = "Ho"


def test_replace_makes_a_copy():
    message = Message.user("Hi", metadata={"a": 1})
    other = message.replace(status="failed")
    assert (message.status, other.status) == ("complete", "failed")
    assert other.metadata == message.metadata


# --- what a reader and a provider see ---


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (SHAPES["text"], "Hello"),
        (SHAPES["no content"], ""),
        (SHAPES["thinking"], "Yes."),
        (SHAPES["refusal"], "I cannot."),
        (SHAPES["image by url"], "See"),
        (SHAPES["unknown part"], ""),
        (Message.user((TextPart(text="a"), TextPart(text="b"))), "ab"),
        (Message.assistant((RefusalPart(text="no"), TextPart(text="yes"))), "yes"),
    ],
)
def test_text_is_what_a_reader_sees(message, text):
    assert message.text == text


def test_parts_are_uniform():
    assert SHAPES["text"].parts == (TextPart(text="Hello"),)
    assert SHAPES["no content"].parts == ()
    assert SHAPES["refusal"].parts == SHAPES["refusal"].content


@pytest.mark.parametrize(
    ("message", "empty"),
    [
        (Message.assistant(), True),
        (Message.assistant(""), True),
        (Message.assistant(()), True),
        (Message.assistant((TextPart(text=""),)), True),
        (Message.assistant((ReasoningPart(text="Hm."),)), True),
        (Message.assistant(" "), False),
        (SHAPES["refusal"], False),
        (SHAPES["parallel calls"], False),
        (SHAPES["image inline"], False),
        (SHAPES["unknown part"], False),
    ],
)
def test_empty_is_what_a_provider_would_refuse(message, empty):
    assert message.is_empty is empty


# --- any message at all ---

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=40)
free_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4)
    ),
    max_leaves=12,
)
extras = st.dictionaries(texts, free_json, max_size=3)
maybe = st.none() | texts
media = {
    "url": maybe,
    "data": maybe,
    "file_id": maybe,
    "media_type": maybe,
    "extra": extras,
}
parts = st.one_of(
    st.builds(TextPart, text=texts, extra=extras),
    st.builds(ImagePart, detail=maybe, **media),
    st.builds(AudioPart, format=maybe, **media),
    st.builds(VideoPart, **media),
    st.builds(FilePart, filename=maybe, **media),
    st.builds(
        ReasoningPart,
        text=texts,
        signature=maybe,
        redacted=maybe,
        producer=maybe,
        extra=extras,
    ),
    st.builds(RefusalPart, text=texts, extra=extras),
    st.builds(OpaquePart, data=free_json),
)
contents = texts | st.lists(parts, max_size=4).map(tuple)
calls = st.lists(
    st.builds(
        ToolCall, id=texts, name=texts, arguments=texts, kind=texts, extra=extras
    ),
    max_size=3,
).map(tuple)
counts = st.none() | st.integers(0, 10**9)
usages = st.none() | st.builds(
    Usage, input_tokens=counts, output_tokens=counts, cached_tokens=counts, extra=extras
)
times = st.none() | st.datetimes(
    min_value=datetime(1970, 1, 2),
    max_value=datetime(9000, 1, 1),
    timezones=st.integers(-14 * 60, 14 * 60).map(
        lambda minutes: timezone(timedelta(minutes=minutes))
    ),
)
common = {
    "name": maybe,
    "status": st.sampled_from(["complete", "incomplete", "failed", "corrupt"]),
    "usage": usages,
    "model": maybe,
    "metadata": extras,
    "supersedes": st.lists(st.integers(1, 10**12), max_size=3).map(tuple),
    "created_at": times,
}
messages = st.one_of(
    st.builds(
        Message,
        role=st.sampled_from(["system", "developer", "user"]),
        content=contents,
        **common,
    ),
    st.builds(
        Message,
        role=st.just("assistant"),
        content=st.none() | contents,
        tool_calls=calls,
        **common,
    ),
    st.builds(
        Message,
        role=st.just("tool"),
        content=contents,
        tool_call_id=texts.filter(bool),
        is_error=st.booleans(),
        **common,
    ),
)


@settings(deadline=None, max_examples=100)
@given(messages)
def test_what_is_stored_is_what_was_given(message):
    stored, body = storable(as_message(message), max_bytes=MEBI)
    assert stored == message
    assert decode(body) == stored
    assert encode(stored) == body
    assert storable(stored, max_bytes=MEBI) == (stored, body)


@settings(deadline=None, max_examples=100)
@given(messages)
def test_plain_types_are_accepted_back(message):
    assert as_message(json.loads(json.dumps(to_dict(message)))) == message


def test_a_templates_output_is_a_text_like_any_other():
    message = Message.user(mark_safe("<b>"), metadata={"a": mark_safe("&")})
    assert decode(encode(message)) == Message.user("<b>", metadata={"a": "&"})
    assert type(to_dict(message)["content"]) is str
