"""How the demo prints."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from convmem.memory import DefaultMemoryProvider
from convmem.messages import Message, ToolCall
from convmem.stores import LocalStore
from project.demo_output import PromiseBroken, Stage, gist, roles, seen_and_left_out


@pytest.fixture
def printed() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def stage(printed) -> Stage:
    return Stage(Console(file=printed, width=80))


def test_steps_are_numbered(stage, printed):
    stage.title("One")
    stage.title("Two", "more")
    assert printed.getvalue().split() == ["1.", "One", "2.", "Two", "more"]


def test_what_is_said_is_no_markup_and_no_escape_sequence(stage, printed):
    stage.said("user", "[bold]x[/] \x1b[31mred\x07")
    assert printed.getvalue().strip() == "user  [bold]x[/] ␛[31mred␇"


def test_long_lines_are_indented(stage, printed):
    stage.said("user", "word " * 30)
    first, second, *_ = printed.getvalue().splitlines()
    assert first.startswith("      user  word")
    assert second.startswith(" " * 12 + "word")


def test_promises(stage, printed):
    stage.promise(True, "It holds.")
    with pytest.raises(PromiseBroken, match=r"It does not\."):
        stage.promise(False, "It does not.")
    assert [line.strip() for line in printed.getvalue().splitlines()] == [
        "✓  It holds.",
        "✗  It does not.",
    ]


def test_gist():
    call = ToolCall(id="1", name="clock", arguments='{"city":\n "Paris"}')
    assert gist(Message.user(" two\n lines ")) == "two lines"
    assert gist(Message.assistant(tool_calls=(call,))) == (
        'calls clock({"city": "Paris"})'
    )
    assert gist(Message.assistant("")) == "(no text)"
    assert gist(Message.user("x" * 99), 10) == "x" * 9 + "…"
    assert gist(Message.user("a\x1b[2Jb")) == "a␛[2Jb"


def test_roles_in_order_of_appearance():
    said = [Message.user("a"), Message.assistant("b"), Message.user("c")]
    assert roles(said) == "2 user, 1 assistant"


def test_every_message_is_listed_with_its_fate(stage, printed):
    store = LocalStore()
    call = ToolCall(id="1", name="clock", arguments="{}")
    store.add(
        "chat",
        [
            "early",
            Message.assistant(tool_calls=(call,)),
            Message.tool("1", "14:05"),
            Message.assistant("It is 14:05."),
        ],
    )
    stored = store.get("chat")
    view = DefaultMemoryProvider(store, 2).plan("chat", stored)
    stage.show(seen_and_left_out(stored, view))
    rows = [line.split() for line in printed.getvalue().splitlines()[1:]]
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        ("1", "user", "window"),
        ("2", "assistant", "window"),
        ("3", "tool", "orphan_tool_result"),
        ("4", "assistant", "yes"),
    ]
