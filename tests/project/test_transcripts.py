"""Chats in files: what is read, and how the rest is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from convmem.exceptions import InvalidMessage
from project.demo import TRANSCRIPT
from project.transcripts import UnreadableTranscript, read_transcript

CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]


def write(folder: Path, text: str) -> Path:
    path = folder / "chat.json"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(CHAT),
        json.dumps({"messages": CHAT}),
        json.dumps([{"id": 1}, {"messages": CHAT}]),
        json.dumps({"messages": CHAT}) + "\n" + json.dumps({"other": 1}) + "\n\n",
        json.dumps(CHAT, indent=2),
    ],
)
def test_shapes_of_files(tmp_path, text):
    messages = read_transcript(write(tmp_path, text))
    assert [(m.role, m.text) for m in messages] == [
        ("user", "Hi"),
        ("assistant", "Hello"),
    ]


def test_the_chat_is_chosen_by_its_number(tmp_path):
    other = [{"role": "user", "content": "second"}]
    path = write(tmp_path, json.dumps([{"messages": CHAT}, {"messages": other}]))
    assert [m.text for m in read_transcript(path, 1)] == ["second"]
    with pytest.raises(UnreadableTranscript, match="has 2 chats.*number 2"):
        read_transcript(path, 2)


def test_a_line_separator_inside_a_text_is_no_end_of_line(tmp_path):
    chat = [{"role": "user", "content": "a\u2028b"}]
    lines = f"{json.dumps(chat, ensure_ascii=False)}\n{json.dumps(CHAT)}\n"
    assert read_transcript(write(tmp_path, lines))[0].text == "a\u2028b"


@pytest.mark.parametrize("text", ["", "not json", "{}", "[]", "[1, 2]", '{"a": [{}]}'])
def test_files_without_a_chat(tmp_path, text):
    with pytest.raises(UnreadableTranscript, match=r"chat\.json"):
        read_transcript(write(tmp_path, text))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UnreadableTranscript, match="cannot be read"):
        read_transcript(tmp_path / "missing.json")
    path = tmp_path / "latin.json"
    path.write_bytes(b"\xe9")
    with pytest.raises(UnreadableTranscript, match="cannot be read"):
        read_transcript(path)


def test_a_message_that_breaks_a_rule_is_named(tmp_path):
    chat = [*CHAT, {"role": "robot", "content": "x"}]
    with pytest.raises(InvalidMessage, match="robot"):
        read_transcript(write(tmp_path, json.dumps(chat)))


def test_the_demos_own_transcript():
    messages = read_transcript(TRANSCRIPT)
    assert [m.role for m in messages].count("tool") == 4
    assert len(messages[2].tool_calls) == 2
    assert "Noor" in messages[1].text


def test_real_chats(shared):
    path = shared / "conversations" / "taubench_airline_gpt4o.jsonl"
    chats = [read_transcript(path, index) for index in range(14)]
    assert sum(len(chat) for chat in chats) == 456
    assert all(chat[0].role == "system" for chat in chats)
    calls = {call.id for chat in chats for m in chat for call in m.tool_calls}
    results = {m.tool_call_id for chat in chats for m in chat if m.role == "tool"}
    assert results <= calls
