"""Would a provider accept these messages? For tests and for reports.

Written apart from the repair, so that each can be held against the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from convmem.messages import SYSTEM_ROLES, Message, ReasoningPart


def is_valid_for_provider(messages: Sequence[Message]) -> bool:
    """Return whether `violations` finds nothing."""
    return not violations(messages)


def violations(messages: Sequence[Message]) -> list[str]:
    """Return what the strict providers refuse in ``messages``, one sentence each.

    Every assistant message with tool calls is followed at once by one result a call
    and nothing else; no other tool result exists; no message is empty; a message of
    nothing but reasoning stands before another assistant message; none is corrupt.
    """
    found: list[str] = []
    expected: Counter[str] = Counter()
    caller = 0
    for index, message in enumerate(messages):
        if message.role == "tool":
            wanted = str(message.tool_call_id)
            if expected[wanted] > 0:
                expected[wanted] -= 1
            else:
                found.append(f"{index}: tool result {wanted!r} answers no call.")
        else:
            found += _open_calls(caller, expected)
            caller, expected = index, Counter(call.id for call in message.tool_calls)
        found += _content(messages, index)
    return found + _open_calls(caller, expected)


def _open_calls(caller: int, expected: Counter[str]) -> list[str]:
    return [f"{caller}: call {call!r} has no result." for call in expected.elements()]


def _content(messages: Sequence[Message], index: int) -> list[str]:
    message = messages[index]
    if message.status == "corrupt":
        return [f"{index}: the {message.role} message cannot be read."]
    if not message.is_empty:
        return []
    if not any(isinstance(part, ReasoningPart) for part in message.parts):
        return [f"{index}: the {message.role} message is empty."]
    following = (messages[place].role for place in range(index + 1, len(messages)))
    follower = next((role for role in following if role not in SYSTEM_ROLES), None)
    if message.role == follower == "assistant":
        return []
    return [f"{index}: reasoning of the {message.role} leads to nothing."]
