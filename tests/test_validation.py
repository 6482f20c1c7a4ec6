"""The border: whatever is wrong is named by its index, its field and the remedy."""

from __future__ import annotations

import enum
import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from django.utils.safestring import SafeString, mark_safe
from hypothesis import given, settings
from hypothesis import strategies as st

from convmem.exceptions import (
    BadInput,
    EmptyBatch,
    InvalidConversationId,
    InvalidMessage,
    InvalidOwner,
    MessageTooLarge,
)
from convmem.messages import (
    ImagePart,
    Message,
    OpaquePart,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
    Usage,
    decode,
    to_dict,
)
from convmem.owners import NOBODY, Owner, check_owner, conversation_key
from convmem.validation import (
    as_message,
    as_messages,
    check_batch,
    check_conversation_id,
    check_list,
    storable,
)

MEBI = 1024 * 1024


def refused(value: object, *, index: int = 3) -> tuple[int | None, str | None, str]:
    """Return (index, field, sentence) of the error, wherever the border finds it."""
    with pytest.raises(InvalidMessage) as caught:
        storable(as_message(value, index=index), index=index, max_bytes=MEBI)
    error = caught.value
    assert (error.code, error.status) == ("invalid_message", 400)
    assert str(error) == error.message
    assert isinstance(error, ValueError)
    return error.details["index"], error.details["field"], error.message


# --- conversation ids ---


@pytest.mark.parametrize(
    "value", ["t", "t ", "T", " ", "a/b\nc", "é" * 255, "\N{GRINNING FACE}" * 255]
)
def test_an_id_is_any_text_and_stays_exact(value):
    assert check_conversation_id(value) == value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("", "must have 1 to 255 characters; this one has 0"),
        ("x" * 256, "must have 1 to 255 characters; this one has 256"),
        (None, "must be a string, not NoneType"),
        (7, "must be a string, not int"),
        (b"t", "must be a string, not bytes"),
        (["t"], "must be a string, not list"),
        ("a\x00", "holds U+0000 or a lone surrogate"),
        ("a\ud800", "holds U+0000 or a lone surrogate"),
    ],
)
def test_a_wrong_id_is_refused(value, said):
    with pytest.raises(InvalidConversationId) as caught:
        check_conversation_id(value)
    assert said in caught.value.message
    assert caught.value.code == "invalid_conversation_id"


def test_an_id_from_a_template_becomes_plain():
    assert type(check_conversation_id(mark_safe("t"))) is str


# --- forms of one message ---


def test_a_string_is_a_users_text():
    assert as_message("Hello") == Message.user("Hello")


def test_a_mapping_is_plain_json():
    assert as_message({"role": "tool", "tool_call_id": "1", "content": "2"}) == (
        Message.tool("1", "2")
    )


def test_a_message_stays_itself():
    message = Message.user("Hello")
    assert as_message(message) is message


def test_a_stored_message_read_as_json_loses_its_place():
    plain = to_dict(Message.user("Hello", position=9))
    assert as_message(plain) == Message.user("Hello")


def test_parts_may_be_strings_mappings_or_values():
    content = ["a", {"type": "text", "text": "b"}, ImagePart(url="u")]
    assert as_message({"role": "user", "content": content}).content == (
        TextPart(text="a"),
        TextPart(text="b"),
        ImagePart(url="u"),
    )


class Word(str):
    pass


class Who(enum.StrEnum):
    USER = "user"


@pytest.mark.parametrize("text", [mark_safe("Hi"), Word("Hi")])
def test_subclasses_of_str_become_plain(text):
    for value in (text, {"role": Who.USER, "content": text}):
        assert type(as_message(value).content) is str
    stored, body = storable(Message.user(text, name=text), max_bytes=MEBI)
    assert stored == Message.user("Hi", name="Hi")
    assert type(stored.content) is str
    assert not isinstance(as_message({"role": "user", "content": [text]}).text, Word)
    assert not isinstance(stored.name, SafeString)
    assert body == '{"role":"user","content":"Hi","name":"Hi"}'


# --- nothing is lost on the way in ---


@pytest.mark.parametrize(
    "part",
    [
        {"type": "hologram", "beam": [1, {"a": None}]},
        {"type": "image_url", "image_url": {"url": "https://x.test"}},
        {"no_type": 1},
        {"type": ["text"]},
        {"type": None, "text": "x"},
        {"type": "opaque", "data": 1, "more": 2},
    ],
)
def test_an_unknown_part_is_kept_whole(part):
    message = as_message({"role": "user", "content": [part]})
    assert message.content == (OpaquePart(data=part),)
    assert as_message(to_dict(message)) == message


def test_an_opaque_part_is_not_wrapped_twice():
    part = {"type": "opaque", "data": {"type": "hologram"}}
    assert as_message({"role": "user", "content": [part]}).content == (
        OpaquePart(data={"type": "hologram"}),
    )


def test_unknown_keys_of_known_shapes_are_kept_as_extra():
    message = as_message(
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}},
                {"type": "image", "url": "u", "extra": {"a": 1}, "alt": "A cat"},
            ],
            "tool_calls": [{"id": "1", "name": "f", "index": 0}],
            "usage": {"input_tokens": 3, "audio_tokens": 4},
        }
    )
    assert message.content == (
        TextPart(text="x", extra={"cache_control": {"type": "ephemeral"}}),
        ImagePart(url="u", extra={"alt": "A cat", "a": 1}),
    )
    assert message.tool_calls == (ToolCall(id="1", name="f", extra={"index": 0}),)
    assert message.usage == Usage(input_tokens=3, extra={"audio_tokens": 4})


# --- refusals name the index and the field ---

ASSISTANT = {"role": "assistant", "content": "x"}
USER = {"role": "user", "content": "x"}
MAPPINGS = [
    ({}, "role", "role None is none of system, developer, user, assistant, tool"),
    ({"role": "robot", "content": "x"}, "role", "role 'robot' is none of system"),
    ({"role": "User", "content": "x"}, "role", "role 'User' is none of system"),
    ({"role": ["user"], "content": "x"}, "role", "role ['user'] is none of"),
    ({"role": "user"}, "content", "a user message needs content (or '')"),
    ({"role": "user", "content": 5}, "content", "got `int`"),
    ({"role": "user", "content": {}}, "content", "got `object`"),
    ({"role": "user", "content": [5]}, "content", "got `int`"),
    ({"role": "user", "content": [{"type": "text"}]}, "content", "field `text`"),
    ({"role": "tool", "content": "x"}, "tool_call_id", "needs the id of the call"),
    (
        {"role": "tool", "content": "x", "tool_call_id": ""},
        "tool_call_id",
        "needs the id of the call it answers",
    ),
    (
        {"role": "tool", "content": "x", "tool_call_id": 7},
        "tool_call_id",
        "Expected `str | null`, got `int`",
    ),
    ({"role": "tool", "tool_call_id": "1"}, "content", "a tool message needs content"),
    (
        {**USER, "tool_calls": [{"id": "1", "name": "f"}]},
        "tool_calls",
        "only an assistant message calls tools",
    ),
    ({**ASSISTANT, "tool_calls": [{"id": "1"}]}, "tool_calls", "field `name`"),
    ({**ASSISTANT, "tool_calls": [7]}, "tool_calls", "got `int`"),
    ({**ASSISTANT, "tool_calls": {}}, "tool_calls", "Expected `array`"),
    (
        {**ASSISTANT, "tool_calls": [{"id": "1", "name": "f", "arguments": {}}]},
        "tool_calls",
        "Expected `str`, got `object`",
    ),
    (
        {**ASSISTANT, "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
        "tool_calls",
        "OpenAI wire shape; decode it with convmem.dialects.openai",
    ),
    ({**USER, "metadata": ["a"]}, "metadata", "Expected `object`, got `array`"),
    ({**USER, "metadata": {1: 2}}, "metadata", "Expected `str`"),
    ({**USER, "status": "done"}, "status", "Invalid enum value 'done'"),
    ({**USER, "name": 5}, "name", "got `int`"),
    ({**USER, "usage": {"input_tokens": 1.5}}, "usage", "got `float`"),
    ({**USER, "created_at": "yesterday"}, "created_at", "RFC3339"),
    ({**USER, "is_error": "no"}, "is_error", "Expected `bool`"),
    ({**USER, "supersedes": ["a"]}, "supersedes", "Expected `int`"),
    ({**USER, "colour": "red"}, "colour", "unknown field 'colour'; put it in 'metad"),
]


@pytest.mark.parametrize(("value", "field", "said"), MAPPINGS)
def test_a_wrong_mapping_is_refused(value, field, said):
    index, got, message = refused(value)
    assert (index, got) == (3, field)
    assert message.startswith(f"Message 3, field '{field}': ")
    assert said in message


LONELY: list = []
LONELY.append(LONELY)
VALUES = [
    (Message(role="robot", content="x"), "role", "role 'robot' is none of"),
    (Message(role="user"), "content", "needs content"),
    (Message(role="tool", content="x"), "tool_call_id", "needs the id of the call"),
    (
        Message.user("x", tool_calls=(ToolCall(id="1", name="f"),)),
        "tool_calls",
        "only an assistant message calls tools",
    ),
    (Message.user(5), "content", "got `int`"),
    (Message.user(5, metadata={"a": "x" * MEBI}), "content", "got `int`"),
    (Message.user(["\x00"]), "content", "got `str`"),
    (Message.user("x", metadata={"a": object()}), "metadata", "object is none of JSON"),
    (Message.user("x", metadata={(1, 2): 3}), "metadata", "has no JSON"),
    (Message.user("x", metadata={"a": LONELY}), "metadata", "has no JSON"),
    (Message.user("\ud800", metadata={"a": LONELY}), "metadata", "has no JSON"),
    (Message.user("\x00", metadata={"a": math.nan}), "metadata", "NaN and Infinity"),
    (Message.assistant(tool_calls=5), "tool_calls", "got `int`"),
    (Message.user("x", created_at="2025-01-01"), "created_at", "with a time zone"),
    (
        Message.user("x", created_at=datetime(2025, 1, 1)),
        "created_at",
        "it must be a datetime with a time zone, not datetime.datetime(2025, 1, 1",
    ),
]


@pytest.mark.parametrize(("value", "field", "said"), VALUES)
def test_a_wrong_value_is_refused(value, field, said):
    index, got, message = refused(value)
    assert (index, got) == (3, field)
    assert message.startswith(f"Message 3, field '{field}': ")
    assert said in message


@pytest.mark.parametrize("value", [None, 7, b"x", ["x"], object()])
def test_another_type_is_refused_by_its_name(value):
    index, field, message = refused(value)
    assert (index, field) == (3, None)
    assert message == (
        "Message 3: a message is a string, dict or Message, "
        f"not {type(value).__name__}."
    )


def test_without_an_index_the_sentence_says_the_message():
    with pytest.raises(InvalidMessage, match="^The message, field 'role': role "):
        as_message({"role": "x"})


# --- lists ---


def test_one_item_or_many_become_a_list():
    assert as_messages("a") == [Message.user("a")]
    assert as_messages(USER) == [Message.user("x")]
    assert as_messages(Message.user("a")) == [Message.user("a")]
    assert as_messages(["a", USER]) == [Message.user("a"), Message.user("x")]
    assert as_messages(()) == []


def test_the_index_is_the_place_in_the_list():
    with pytest.raises(InvalidMessage) as caught:
        check_list(["a", "b", {"role": "x"}, {"role": "y"}])
    assert caught.value.details == {"index": 2, "field": "role"}


@pytest.mark.parametrize("value", [None, "a", b"a", 5, USER, {"a"}, iter(["a"])])
def test_a_list_that_is_none_is_refused(value):
    with pytest.raises(InvalidMessage) as caught:
        check_batch(value)
    assert caught.value.message == (
        f"messages must be a list of messages, not {type(value).__name__}."
    )
    assert caught.value.details == {"index": None, "field": None}


@pytest.mark.parametrize("value", [[], ()])
def test_an_empty_batch_is_refused(value):
    with pytest.raises(EmptyBatch) as caught:
        check_batch(value)
    assert caught.value.code == "empty_batch"
    assert "at least one message" in caught.value.message


# --- numbers ---


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("metadata", lambda n: Message.user("x", metadata={"a": [{"b": n}]})),
        ("metadata", lambda n: Message.user("x", metadata={"a": {n}})),
        ("usage", lambda n: Message.assistant("x", usage=Usage(extra={"a": n}))),
        ("content", lambda n: Message.user((OpaquePart(data={"a": (n,)}),))),
        ("content", lambda n: Message.user((TextPart(text="x", extra={"a": n}),))),
        (
            "tool_calls",
            lambda n: Message.assistant(
                tool_calls=(ToolCall(id="1", name="f", extra={"a": n}),)
            ),
        ),
    ],
)
def test_what_is_no_number_in_json_is_refused(number, field, make):
    index, got, message = refused(make(number))
    assert (index, got) == (3, field)
    assert "NaN and Infinity have no JSON; use null" in message


def test_null_and_the_word_nan_are_fine():
    message = Message.user("NaN null", metadata={"a": None, "b": "NaN"})
    assert storable(message, max_bytes=MEBI)[0] == message


def test_python_values_come_back_as_what_json_has():
    message = Message.user(
        "x",
        metadata={
            "tuple": (1, 2),
            "time": datetime(2025, 1, 2, tzinfo=UTC),
            "price": Decimal("1.10"),
            5: None,
        },
    )
    stored, body = storable(message, max_bytes=MEBI)
    assert stored.metadata == {
        "tuple": [1, 2],
        "time": "2025-01-02T00:00:00Z",
        "price": "1.10",
        "5": None,
    }
    assert storable(stored, max_bytes=MEBI) == (stored, body)


# --- time ---


@pytest.mark.parametrize("seconds", [0, 5 * 3600 + 1800, -3600, 7])
def test_a_time_is_stored_as_utc_and_stays_the_same_instant(seconds):
    when = datetime(2025, 1, 2, 3, 4, 5, 6, timezone(timedelta(seconds=seconds)))
    stored, body = storable(Message.user("x", created_at=when), max_bytes=MEBI)
    assert stored.created_at == when
    assert stored.created_at is not None
    assert stored.created_at.utcoffset() == timedelta(0)
    assert '"created_at":"2025-01-0' in body


# --- text ---


def test_what_databases_refuse_becomes_the_replacement_character():
    message = Message.assistant(
        (TextPart(text="a\x00b"), OpaquePart(data={"k\x00": "\udfff"})),
        tool_calls=(ToolCall(id="1", name="f", arguments="\ud800"),),
        name="\x00",
        metadata={"a": ["\x00"]},
    )
    stored, body = storable(message, max_bytes=MEBI)
    assert stored == Message.assistant(
        (TextPart(text="a\ufffdb"), OpaquePart(data={"k\ufffd": "\ufffd"})),
        tool_calls=(ToolCall(id="1", name="f", arguments="\ufffd"),),
        name="\ufffd",
        metadata={"a": ["\ufffd"]},
        sanitized=True,
    )
    assert decode(body) == stored
    assert storable(stored, max_bytes=MEBI) == (stored, body)


@pytest.mark.parametrize(
    "text", ["\\u0000", "\\ud800", "\N{GRINNING FACE}", "\x01", "\u2028", "\ufffd"]
)
def test_other_text_is_untouched(text):
    stored, _ = storable(Message.user(text), max_bytes=MEBI)
    assert stored == Message.user(text)
    assert stored.sanitized is False


@settings(deadline=None, max_examples=100)
@given(st.text(st.characters(), max_size=30), st.text(max_size=5))
def test_any_text_can_be_stored_everywhere(text, key):
    stored, body = storable(Message.user(text, metadata={key: text}), max_bytes=MEBI)
    wanted = "".join(
        "\ufffd" if char == "\x00" or "\ud800" <= char <= "\udfff" else char
        for char in text
    )
    assert stored.content == wanted
    assert list(stored.metadata.values()) == [wanted]
    assert "\\u0000" not in body or "\\" in text + key
    body.encode()


# --- size ---


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda text: Message.user(text), "content"),
        (lambda text: Message.user((TextPart(text=text),)), "content"),
        (lambda text: Message.assistant((ReasoningPart(text=text),)), "content"),
        (lambda text: Message.assistant((RefusalPart(text=text),)), "content"),
        (
            lambda text: Message.assistant(
                tool_calls=(ToolCall(id="1", name="f", arguments=text),)
            ),
            "tool_calls",
        ),
    ],
)
def test_text_over_the_limit_is_refused_by_its_bytes(make, field):
    fits = "é" * 50  # 100 bytes
    storable(make(fits), max_bytes=100)
    with pytest.raises(MessageTooLarge) as caught:
        storable(make(fits + "x"), index=2, max_bytes=100)
    assert caught.value.message == (
        'Message 2 has 101 bytes of text; CONVMEM["MAX_MESSAGE_BYTES"] allows 100.'
    )
    assert caught.value.details == {"index": 2, "field": field}
    assert (caught.value.code, caught.value.status) == ("message_too_large", 413)
    assert isinstance(caught.value, BadInput)


def test_the_limit_is_for_all_text_of_a_message():
    parts = tuple(TextPart(text="x" * 60) for _ in range(2))
    with pytest.raises(MessageTooLarge, match="has 120 bytes"):
        storable(Message.user(parts), max_bytes=100)


# --- owners ---


@pytest.mark.parametrize("owner", [NOBODY, Owner(name="user", id="1")])
def test_a_good_owner_passes(owner):
    assert check_owner(owner) is owner


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        ("user:1", "owner must be an Owner, not str"),
        (None, "owner must be an Owner, not NoneType"),
        (Owner(name="user"), "needs both a name and an id, or neither"),
        (Owner(id="1"), "needs both a name and an id, or neither"),
        (Owner(name="user", id=1), "owner id must be a string, not int; use str(pk)"),
        (Owner(name="user", id="x" * 256), "at most 255 characters; this one has 256"),
        (Owner(name="x" * 256, id="1"), "owner name may have at most 255 characters"),
        (Owner(name="user", id="\x00"), "owner id holds U+0000 or a lone surrogate"),
        (Owner(name="\ud800", id="1"), "owner name holds U+0000 or a lone surrogate"),
    ],
)
def test_a_wrong_owner_is_refused(owner, said):
    with pytest.raises(InvalidOwner) as caught:
        check_owner(owner)
    assert said in caught.value.message
    assert caught.value.code == "invalid_owner"


def test_owners_have_a_readable_form():
    assert str(Owner(name="user", id="1")) == "user:1"
    assert str(NOBODY) == "(nobody)"


names = st.text(st.characters(codec="utf-8"), max_size=6)
places = st.tuples(names, names, names, names)


def key(place: tuple[str, str, str, str]) -> str:
    namespace, name, owner_id, conversation_id = place
    return conversation_key(namespace, Owner(name=name, id=owner_id), conversation_id)


@settings(deadline=None, max_examples=100)
@given(places, places)
def test_different_places_have_different_keys(one, other):
    assert (key(one) == key(other)) == (one == other)


def test_parts_of_a_key_do_not_run_into_each_other():
    one = conversation_key("a", Owner(name="b", id="c"), "d")
    assert len(one) == 64
    assert int(one, 16) >= 0
    neighbours = [("ab", "", "c", "d"), ("a", "bc", "", "d"), ("a", "1:b", "c", "d")]
    assert one not in {key(place) for place in neighbours}


def test_keys_are_stable_between_releases():
    """A key is in the database: a change of the recipe would lose conversations."""
    assert conversation_key("default", NOBODY, "hello") == (
        "f05ae3559b60f437f50bef9b5b11cc18f4aa0a6821825a2a346125f4ec095520"
    )
