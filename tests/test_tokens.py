"""Estimates of tokens by script, and of whole messages and requests."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convmem.chat import ChatRequest, ToolSpec
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
    VideoPart,
)
from convmem.tokens import (
    CALL_OVERHEAD,
    MESSAGE_OVERHEAD,
    count_messages,
    estimate,
    estimate_request,
    estimate_text,
    estimate_tools,
)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("abcd", 1),
        ("abcde", 2),
        ("x" * 400, 100),
        ("漢" * 400, 400),
        ("ひらがな", 4),
        ("한국어", 3),
        ("ж" * 10, 5),
        ("é" * 2, 1),
        ("नमस्ते", 6),
        ("🙂", 2),
        ("\ud83d", 1),
        ("ab漢字", 3),
    ],
)
def test_text_by_script(text, tokens):
    assert estimate_text(text) == tokens


def test_chinese_is_not_counted_as_if_it_were_english():
    assert estimate_text("我" * 400) >= 240


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(exclude_categories=())))
def test_any_text_has_an_estimate_by_its_widths(text):
    weights = sum(
        1 if c < "\x80" else 2 if c < "\u0800" else 4 if c < "\U00010000" else 8
        for c in text
    )
    assert estimate_text(text) == -(-weights // 4)


@settings(max_examples=100, deadline=None)
@given(st.text(), st.text())
def test_more_text_is_never_fewer_tokens(one, two):
    both = estimate_text(one + two)
    assert max(estimate_text(one), estimate_text(two)) <= both
    assert both <= estimate_text(one) + estimate_text(two)


def test_a_message_has_an_overhead():
    assert estimate(Message.user("x" * 40)) == MESSAGE_OVERHEAD + 10
    assert estimate(Message.assistant()) == MESSAGE_OVERHEAD
    assert estimate(Message.user("", name="ann")) == MESSAGE_OVERHEAD + 2


def test_text_parts_count_as_text():
    parts = (TextPart(text="x" * 40), RefusalPart(text="y" * 40))
    assert estimate(Message.user(parts)) == MESSAGE_OVERHEAD + 20


def test_tool_calls_and_their_results_count():
    call = ToolCall(id="a", name="look", arguments="x" * 40)
    once = estimate(Message.assistant(tool_calls=(call,)))
    assert once == MESSAGE_OVERHEAD + CALL_OVERHEAD + 1 + 10
    twice = estimate(Message.assistant(tool_calls=(call, call)))
    assert twice - once == once - MESSAGE_OVERHEAD
    result = Message.tool("a", "x" * 40)
    assert estimate(result) == MESSAGE_OVERHEAD + CALL_OVERHEAD + 10


@pytest.mark.parametrize("kind", [ImagePart, AudioPart, VideoPart, FilePart])
def test_media_count_whatever_their_address(kind):
    short = estimate(Message.user((kind(url="https://e.org/a"),)))
    long = estimate(Message.user((kind(data="A" * 100_000),)))
    assert short == long > 500


def test_an_image_of_low_detail_is_cheap():
    low = Message.user((ImagePart(url="u", detail="low"),))
    high = Message.user((ImagePart(url="u", detail="high"),))
    assert estimate(low) == MESSAGE_OVERHEAD + 85 < estimate(high)


def test_reasoning_counts_without_its_signature():
    part = ReasoningPart(text="x" * 40, signature="s" * 4000)
    assert estimate(Message.assistant((part,))) == MESSAGE_OVERHEAD + 10
    hidden = ReasoningPart(redacted="x" * 400)
    assert estimate(Message.assistant((hidden,))) == MESSAGE_OVERHEAD + 100


def test_unknown_parts_count_by_their_json():
    part = OpaquePart(data={"type": "odd", "payload": "x" * 400})
    assert 100 <= estimate(Message.user((part,))) <= 120
    for data in ({"bad": "\ud83d" * 40}, {"what": object}):
        assert estimate(Message.user((OpaquePart(data=data),))) > MESSAGE_OVERHEAD


def test_counting_by_another_counter():
    messages = [Message.user("a"), Message.assistant("b")]
    assert count_messages(messages) == sum(map(estimate, messages))
    assert count_messages(messages, lambda message: 7) == 14
    assert count_messages([]) == 0


def test_tools_and_the_answers_schema_count_in_a_request():
    tool = ToolSpec(name="look", description="x" * 400, parameters={"type": "object"})
    request = ChatRequest(messages=(Message.user("hi"),))
    bare = estimate_request(request)
    assert bare == estimate(Message.user("hi"))
    with_tool = ChatRequest(messages=request.messages, tools=(tool,))
    assert estimate_request(with_tool) == bare + estimate_tools([tool]) > bare + 100
    schema = {"type": "json_schema", "json_schema": {"schema": {"x": "y" * 400}}}
    with_schema = ChatRequest(messages=request.messages, response_format=schema)
    assert estimate_request(with_schema) > bare + 100


@pytest.mark.parametrize("letter", ["a", "漢", "é🙂"])
def test_a_long_text_is_not_walked_character_by_character(letter):
    """Beside a bare loop over the characters, on the same machine at the same time."""
    text = letter * 200_000

    def timed(work):
        start = time.perf_counter()
        work(text)
        return time.perf_counter() - start

    def loop(text):
        return sum(ord(c) > 127 for c in text)

    ours = min(timed(estimate_text) for _ in range(5))
    assert ours < min(timed(loop) for _ in range(5))
