"""Turns, tool groups and the open turn: the units that a view is cut and mended by.

A turn is a user message and all that answers it; what stands before the first user
message is a turn of its own. System and developer messages belong to no turn.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence

from convmem.messages import SYSTEM_ROLES, Message, ReasoningPart, ToolCall, Value


class Pairs(Value, frozen=True):
    """Tool results of one turn beside their calls, by index in the list.

    ``results`` maps each assistant message that calls tools to its results, in the
    order they came; ``orphans`` are results that answer no call before them.
    """

    results: dict[int, list[int]]
    orphans: list[int]


def pair(messages: Sequence[Message], start: int, end: int) -> Pairs:
    """Pair calls and results of ``messages[start:end]``, one turn, by id.

    Results may come in any order. An id that is used twice pairs by position: the
    first result belongs to the first call.
    """
    waiting: dict[str, deque[int]] = {}
    results: dict[int, list[int]] = {}
    orphans: list[int] = []
    for index in range(start, end):
        message = messages[index]
        if message.tool_calls:
            results[index] = []
            for call in message.tool_calls:
                waiting.setdefault(call.id, deque()).append(index)
        elif message.role == "tool":
            callers = waiting.get(message.tool_call_id or "")
            if callers:
                results[callers.popleft()].append(index)
            else:
                orphans.append(index)
    return Pairs(results=results, orphans=orphans)


def unanswered(message: Message, results: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Return the calls of ``message`` that none of its ``results`` answers."""
    left = Counter(result.tool_call_id for result in results)
    missing = []
    for call in message.tool_calls:
        if left[call.id]:
            left[call.id] -= 1
        else:
            missing.append(call)
    return tuple(missing)


def turns(messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """Yield the ``(start, end)`` of each turn; together they cover the list."""
    start = 0
    for index, message in enumerate(messages):
        if message.role == "user" and index > start:
            yield start, index
            start = index
    if start < len(messages):
        yield start, len(messages)


def last_user(messages: Sequence[Message], before: int | None = None) -> int | None:
    """Return the index of the last user message (before index ``before``)."""
    end = len(messages) if before is None else before
    for index in range(end - 1, -1, -1):
        if messages[index].role == "user":
            return index
    return None


def open_turn(messages: Sequence[Message]) -> int:
    """Return where the open turn starts: ``len(messages)`` when there is none.

    It reaches from the last user message to the end, unless the list ends in an
    assistant message without tool calls: then everything is answered. The end is that
    of the mended list: calls without any result and results without a call are no part
    of a view, and late results stand right after their call.
    """
    start = last_user(messages)
    if start is None or _is_answered(messages, start):
        return len(messages)
    return start


def lacks_start(messages: Sequence[Message]) -> bool:
    """Return whether ``messages``, the newest of a conversation, may begin inside its
    open turn, so that older ones are needed to show it whole.

    The input of a turn may be several user messages: only another message before them
    proves that its start was read.
    """
    start = last_user(messages)
    if not messages or _is_answered(messages, start or 0):
        return False
    if start is None:
        return True
    return all(m.role in SYSTEM_ROLES or m.role == "user" for m in messages[:start])


def turn_start(messages: Sequence[Message], index: int) -> int:
    """Return the start of the turn that the first message from ``index`` on belongs
    to; ``len(messages)`` when only system messages follow."""
    for place in range(index, len(messages)):
        role = messages[place].role
        if role == "user":
            return index
        if role not in SYSTEM_ROLES:
            start = last_user(messages, before=place)
            return index if start is None else min(start, index)
    return len(messages)


def is_reasoning_only(message: Message) -> bool:
    """Return whether an assistant message has reasoning and nothing else; it is shown
    only before the assistant message that it led to."""
    content = message.content
    return (
        message.role == "assistant"
        and isinstance(content, tuple)
        and any(isinstance(part, ReasoningPart) for part in content)
        and message.is_empty
    )


def _is_answered(messages: Sequence[Message], start: int) -> bool:
    """Return whether the turn from ``start`` to the end has its final answer.

    Results stand for their call, wherever they are: a view shows them right after it.
    """
    results: dict[int, list[int]] | None = None
    for index in range(len(messages) - 1, start - 1, -1):
        message = messages[index]
        if message.role == "tool" or message.role in SYSTEM_ROLES:
            continue
        if not message.tool_calls:
            return message.role == "assistant"
        if results is None:
            results = pair(messages, start, len(messages)).results
        if results[index]:
            return False
    return False
