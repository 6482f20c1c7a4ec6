"""Readers of real transcripts into lists of `Message`.

The files are in about twenty shapes. These readers are tolerant and for tests only:
what a message's role or parts mean is taken from its shape, unknown parts are kept as
opaque, and calls without an id get one.

    for transcript in transcripts(shared / "conversations"):
        transcript.name, transcript.messages
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from convmem.messages import (
    ImagePart,
    Message,
    OpaquePart,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
)

CONVERSATIONS = Path(__file__).resolve().parents[1] / ".." / "shared" / "conversations"

ROLES = {
    "human": "user",
    "prompter": "user",
    "gpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "function_call": "assistant",
    "function": "tool",
    "ipython": "tool",
    "observation": "tool",
}
TEXT_TYPES = {"text", "input_text", "output_text", "reasoning_text", "summary_text"}
CALL_TYPES = {
    "tool_call",
    "tool_use",
    "server_tool_use",
    "mcp_tool_use",
    "functionCall",
}
RESULT_TYPES = {"tool_result", "mcp_tool_result"}


@dataclass(frozen=True)
class Transcript:
    """One conversation: ``name`` is its file and place, for test ids."""

    name: str
    messages: tuple[Message, ...]


def transcripts(folder: Path = CONVERSATIONS) -> Iterator[Transcript]:
    """Yield every conversation of every file of ``folder`` that has messages."""
    for path in sorted(folder.glob("*.json*")):
        for index, record in enumerate(_records(path)):
            messages = read(record)
            if messages:
                yield Transcript(f"{path.stem}[{index}]", tuple(messages))


@cache
def all_transcripts(folder: Path = CONVERSATIONS) -> tuple[Transcript, ...]:
    """Return `transcripts` as a tuple, read once; empty when the folder is absent."""
    return tuple(transcripts(folder))


def _records(path: Path) -> list[Any]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    return json.loads(text)


def read(record: Any) -> list[Message]:
    """Return the messages of one conversation of any known shape; [] if unknown."""
    if isinstance(record, list):
        return _path(record)
    if isinstance(record.get("body"), dict):
        return read(record["body"])
    for key, reader in READERS.items():
        if isinstance(record.get(key), list | dict | str):
            return reader(record)
    return []


# --- one reader a shape of conversation ---


def _chat(record: dict[str, Any]) -> list[Message]:
    """OpenAI and Anthropic requests, fine-tuning rows, agent histories."""
    builder = Builder()
    if record.get("system"):
        builder.add("system", record["system"])
    for item in record.get("messages") or record["history"]:
        builder.item(item)
    return builder.messages


def _sharegpt(record: dict[str, Any]) -> list[Message]:
    builder = Builder()
    if record.get("system"):
        builder.add("system", record["system"])
    answer = [record["chosen"]] if "chosen" in record else []
    for item in [*(record.get("conversations") or record["conversation"]), *answer]:
        if "human" in item:
            builder.add("user", item["human"])
            builder.add("assistant", item["assistant"])
        elif item["from"] == "function_call":
            call = _loads(item["value"])
            builder.call(call.get("name", "?"), call.get("arguments", ""))
        else:
            builder.add(item["from"], item["value"])
    return builder.messages


def _mapping(record: dict[str, Any]) -> list[Message]:
    """A ChatGPT export: the branch that the reader saw last."""
    nodes = record["mapping"]
    parents = {node.get("parent") for node in nodes.values()}
    leaves = [None, *(name for name in nodes if name not in parents)]
    leaf = record.get("current_node") or leaves[-1]
    branch = []
    while leaf in nodes:
        branch.append(nodes[leaf].get("message"))
        leaf = nodes[leaf].get("parent")
    if parents == {None}:  # no links at all: the order of the file
        branch = [node.get("message") for node in reversed(nodes.values())]
    builder = Builder()
    for message in reversed(branch):
        if message is not None:
            content = message["content"]
            parts = content.get("parts", content.get("text", content))
            builder.add(message["author"]["role"], parts)
    return builder.messages


def _claude(record: dict[str, Any]) -> list[Message]:
    builder = Builder()
    for item in record["chat_messages"]:
        if isinstance(item, dict):
            content = item.get("content")
            builder.add(item.get("sender"), content or item.get("text") or "")
    return builder.messages


def _events(record: dict[str, Any]) -> list[Message]:
    """Claude Code sessions, and event logs of managed agents."""
    builder = Builder()
    for event in record.get("events") or record["loglines"]:
        if isinstance(event, list):
            if len(event) == 2 and event[0].endswith("events.stream"):
                _managed(builder, event[1])
        elif isinstance(event, dict) and isinstance(event.get("message"), dict):
            builder.item(event["message"])
    return builder.messages


def _managed(builder: Builder, event: dict[str, Any]) -> None:
    kind = event.get("type", "")
    if kind in ("user.message", "agent.message"):
        builder.add(
            "user" if kind.startswith("user") else "assistant", event["content"]
        )
    elif kind.endswith("tool_use"):
        builder.call(event["name"], event.get("input"), event["id"])
    elif kind.endswith("tool_result"):
        ids = [value for key, value in event.items() if key.endswith("use_id")]
        builder.add("tool", event.get("content") or "", call_id=ids[0])


def _dated(record: dict[str, Any]) -> list[Message]:
    builder = Builder()
    for exchanges in record["history"].values():
        for exchange in exchanges:
            builder.add("user", exchange["query"])
            builder.add("assistant", exchange["response"])
    return builder.messages


def _history(record: dict[str, Any]) -> list[Message]:
    return (_dated if isinstance(record["history"], dict) else _chat)(record)


def _questions(record: dict[str, Any]) -> list[Message]:
    builder = Builder()
    for turn in record["question"]:
        for item in turn:
            builder.item(item)
    return builder.messages


def _user_turns(record: dict[str, Any]) -> list[Message]:
    builder = Builder()
    answers = record.get("reference_turns") or []
    for index, turn in enumerate(record["turns"]):
        builder.add("user", turn)
        if index < len(answers):
            builder.add("assistant", answers[index])
    return builder.messages


def _tree(record: dict[str, Any]) -> list[Message]:
    builder = Builder()
    node = record["prompt"]
    while node:
        builder.add(node["role"], node["text"])
        node = node["replies"][0] if node.get("replies") else None
    return builder.messages


def _path(record: list[dict[str, Any]]) -> list[Message]:
    """A flat list with parents: the path to the last message."""
    by_id = {item["user_message_id"]: item for item in record}
    item: dict[str, Any] | None = record[-1]
    path = []
    while item:
        path.append(item)
        item = by_id.get(item["parent_message_id"])
    builder = Builder()
    for item in reversed(path):
        builder.add(item["role"], item["text"])
    return builder.messages


def _instruction(record: dict[str, Any]) -> list[Message]:
    builder = Builder()
    builder.add(
        "user", "\n".join(filter(None, [record["instruction"], record["input"]]))
    )
    builder.add("assistant", record["output"])
    return builder.messages


def _query(record: dict[str, Any]) -> list[Message]:
    builder = Builder()
    for user, assistant in record.get("history") or []:
        builder.add("user", user)
        builder.add("assistant", assistant)
    builder.add("user", record["query"])
    builder.add("assistant", record["response"])
    return builder.messages


def _gemini(record: dict[str, Any]) -> list[Message]:
    builder = Builder()
    system = record.get("systemInstruction") or record.get("system_instruction")
    if system:
        builder.add("system", system.get("parts", ""))
    for item in record["contents"]:
        builder.add(item.get("role", "user"), item.get("parts", []))
    return builder.messages


def _responses(record: dict[str, Any]) -> list[Message]:
    builder = Builder()
    if record.get("instructions"):
        builder.add("system", record["instructions"])
    items = record["input"]
    for item in (
        [{"role": "user", "content": items}] if isinstance(items, str) else items
    ):
        kind = item.get("type")
        if kind == "function_call":
            builder.call(item["name"], item["arguments"], item["call_id"])
        elif kind == "function_call_output":
            builder.add("tool", item.get("output"), call_id=item["call_id"])
        elif kind == "reasoning":
            summary = _text(item.get("summary") or item.get("content"))
            secret = item.get("encrypted_content")
            builder.part(ReasoningPart(text=summary, redacted=secret))
        elif kind in (None, "message"):
            builder.item(item)
        else:
            builder.part(OpaquePart(data=item))
    return builder.messages


def _display(record: dict[str, Any]) -> list[Message]:
    """A whole dialogue in one string: lines that begin with a role."""
    builder = Builder()
    role, lines = "user", []
    for line in record["messages_display"].split("\n"):
        head, colon, rest = line.partition(": ")
        if colon and head in ("user", "assistant", "tool", "system"):
            if lines:
                builder.add(role, "\n".join(lines))
            role, lines = head, [rest]
        else:
            lines.append(line)
    builder.add(role, "\n".join(lines))
    return builder.messages


READERS = {
    "messages": _chat,
    "conversations": _sharegpt,
    "conversation": _sharegpt,
    "mapping": _mapping,
    "chat_messages": _claude,
    "events": _events,
    "loglines": _events,
    "question": _questions,
    "turns": _user_turns,
    "prompt": _tree,
    "instruction": _instruction,
    "query": _query,
    "contents": _gemini,
    "input": _responses,
    "messages_display": _display,
    "history": _history,
}


# --- messages ---


class Builder:
    """Collects messages; gives ids to calls that have none."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._made = 0
        self._asked: list[str] = []

    def item(self, item: dict[str, Any]) -> None:
        """Add a message of the OpenAI or Anthropic kind, with its tool calls."""
        role = item.get("role") or "user"
        ids = item.get("tool_call_ids") or [item.get("tool_call_id")]
        if "thought" in item and item.get("role") == "assistant":
            item = {**item, "content": item.get("content") or item["thought"]}
        self.add(role, item.get("content"), call_id=ids[0])
        calls = list(item.get("tool_calls") or [])
        if item.get("function_call"):
            calls.append({"function": item["function_call"]})
        if calls:
            self._attach([self._call(call) for call in calls])

    def add(self, role: Any, content: Any, *, call_id: str | None = None) -> None:
        """Add a message; blocks in ``content`` that are calls or results move to
        where they belong."""
        role = ROLES.get(str(role).lower(), str(role).lower())
        if role not in ("system", "developer", "user", "assistant", "tool"):
            role = "user"
        blocks = content if isinstance(content, list) else None
        if role == "tool":
            wanted = call_id or (self._asked.pop(0) if self._asked else "none")
            if wanted in self._asked:
                self._asked.remove(wanted)
            self.messages.append(Message.tool(wanted, _content(content)))
            return
        if blocks is None:
            empty = None if role == "assistant" else ""
            text = empty if content is None else _content(content)
            self.messages.append(Message(role=role, content=text))  # type: ignore[arg-type]
            return
        self._blocks(role, blocks)

    def call(self, name: str, arguments: Any, call_id: str | None = None) -> None:
        """Add an assistant's tool call, beside one that stands open."""
        last = self.messages[-1] if self.messages else None
        if last is None or last.role != "assistant":
            self.messages.append(Message.assistant())
        self._attach([self._call({"name": name, "input": arguments, "id": call_id})])

    def part(self, part: Any) -> None:
        """Add an assistant's message of one part."""
        self.messages.append(Message.assistant((part,)))

    def _blocks(self, role: str, blocks: list[Any]) -> None:
        calls, results, rest = [], [], []
        for block in blocks:
            kind = _kind(block)
            if kind in CALL_TYPES and role == "assistant":
                inner = block.get("functionCall") or block.get("function_call") or block
                if isinstance(inner.get("value"), str):
                    inner = _loads(inner["value"])
                calls.append(self._call(inner))
            elif kind in RESULT_TYPES or kind == "functionResponse":
                results.append(block)
            else:
                rest.append(_part(block))
        for block in results:
            inner = block.get("functionResponse") or block.get("function_response")
            if inner:
                self.add(
                    "tool", json.dumps(inner.get("response")), call_id=inner.get("id")
                )
            else:
                self.add(
                    "tool", block.get("content") or "", call_id=block["tool_use_id"]
                )
        if rest or not results:
            self.messages.append(Message(role=role, content=tuple(rest)))  # type: ignore[arg-type]
        if calls:
            self._attach(calls)

    def _attach(self, calls: Iterable[ToolCall]) -> None:
        last = self.messages[-1]
        if last.role != "assistant":
            last = Message.assistant()
            self.messages.append(last)
        self.messages[-1] = last.replace(tool_calls=(*last.tool_calls, *calls))

    def _call(self, call: dict[str, Any]) -> ToolCall:
        function = call.get("function") or call
        arguments = function.get(
            "arguments", function.get("input", function.get("args"))
        )
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments or {})
        self._made += 1
        wanted = call.get("id") or f"made_{self._made}"
        self._asked.append(wanted)
        return ToolCall(id=wanted, name=str(function.get("name")), arguments=arguments)


def _kind(block: Any) -> str:
    if not isinstance(block, dict):
        return "text"
    for key in ("functionCall", "functionResponse"):
        if key in block or key.replace("C", "_c").replace("R", "_r") in block:
            return key
    return str(block.get("type", "text" if "text" in block else "unknown"))


def _part(block: Any) -> Any:
    kind = _kind(block)
    if isinstance(block, str):
        return TextPart(text=block)
    text = block.get("text", block.get("value"))
    if kind in TEXT_TYPES and isinstance(text, str):
        return TextPart(text=text)
    if kind == "thinking":
        return ReasoningPart(
            text=str(block.get("thinking", "")), signature=block.get("signature")
        )
    if kind == "reasoning":
        return ReasoningPart(text=str(text))
    if kind == "redacted_thinking":
        return ReasoningPart(redacted=block.get("data"))
    if kind == "refusal":
        return RefusalPart(text=block["refusal"])
    if kind == "image_url":
        address = block.get("image_url", block.get("value"))
        address = address.get("url") if isinstance(address, dict) else address
        return ImagePart(url=str(address))
    return OpaquePart(data=block)


def _content(content: Any) -> Any:
    if content is None:
        return ""
    if isinstance(content, list):
        return tuple(map(_part, content))
    return content if isinstance(content, str) else json.dumps(content)


def _text(items: Any) -> str:
    if not isinstance(items, list):
        return items if isinstance(items, str) else ""
    return "".join(str(i.get("text", "")) for i in items if isinstance(i, dict))


def _loads(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {"arguments": text}
    return value if isinstance(value, dict) else {"arguments": text}
