"""What the contract adds to stores, and what it must see refused."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from convmem.exceptions import (
    ConvmemError,
    EmptyBatch,
    InvalidMessage,
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
)
from convmem.owners import Owner

ANN = Owner(name="user", id="1")
BOB = Owner(name="user", id="2")

MESSAGES = [
    Message.system("Be brief."),
    Message(role="developer", content="Answer in verse."),
    Message.user("Grüße 👩‍👩‍👧 \u2028\u0085\r\n\t\"'\\ %s %(x)s {0} ' OR 1=1 --"),
    Message.user(
        (
            TextPart(text="What is this?"),
            ImagePart(url="https://example.com/a.png", detail="low"),
            OpaquePart(data={"type": "hologram", "b": 1e2, "a": [None, True]}),
        ),
        name="ann",
    ),
    Message.assistant(
        (ReasoningPart(text="Hm.", signature="c2ln", producer="m"), TextPart(text="A")),
        tool_calls=(
            ToolCall(id="x", name="look", arguments='{"q": 1e2}'),
            ToolCall(id="y", name="look", arguments="{broken"),
        ),
        usage=Usage(input_tokens=3, output_tokens=0),
        model="m-1",
    ),
    Message.tool("x", "found"),
    Message.tool("y", (TextPart(text="no"),), is_error=True),
    Message.assistant((RefusalPart(text="I cannot."),), status="incomplete"),
    Message.assistant(None, metadata={"z": {"1": [1.5, "ü"]}, "a": None}),
    Message.user("", status="failed"),
]

BAD_BATCHES: dict[str, tuple[Any, type[ConvmemError]]] = {
    "nothing": ([], EmptyBatch),
    "no list": ("hello", InvalidMessage),
    "a dict": ({"role": "user", "content": "x"}, InvalidMessage),
    "None": (None, InvalidMessage),
    "wrong role": ([{"role": "robot", "content": "x"}], InvalidMessage),
    "no role": ([{"content": "x"}], InvalidMessage),
    "no tool_call_id": ([{"role": "tool", "content": "x"}], InvalidMessage),
    "unknown field": ([{"role": "user", "content": "x", "id": 1}], InvalidMessage),
    "a number": ([7], InvalidMessage),
    "NaN": ([Message.user("x", metadata={"a": [float("nan")]})], InvalidMessage),
    "wrong type": ([Message(role="user", content=7)], InvalidMessage),  # type: ignore[arg-type]
    "no time zone": (
        [Message.user("x", created_at=datetime(2024, 1, 1))],
        InvalidMessage,
    ),
    "too large": (["x" * (1024 * 1024 + 1)], MessageTooLarge),
}


def check_turns(
    messages: list[Message], *, writers: int, turns: int, size: int
) -> None:
    """Assert that turns named ``writer:turn:part`` are all there, each once and
    together, and that each writer's turns are in its order."""
    texts = [m.text.split(":") for m in messages]
    assert len(texts) == writers * turns * size
    assert [m.position for m in messages] == list(range(1, len(texts) + 1))
    seen: dict[str, int] = {}
    for start in range(0, len(texts), size):
        batch = texts[start : start + size]
        writer, turn = batch[0][0], int(batch[0][1])
        assert batch == [[writer, f"{turn}", f"{part}"] for part in range(size)]
        assert turn == seen.get(writer, -1) + 1
        seen[writer] = turn
    assert seen == {f"{writer}": turns - 1 for writer in range(writers)}
