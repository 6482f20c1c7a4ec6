"""Mend a list of messages so that a provider accepts it.

Pure, deterministic, idempotent, linear; stored messages are untouched and a list that
needs nothing comes back as it is. The rules, turn by turn:

- Tool results belong to the calls of their own turn, by id; an id used twice pairs by
  position. Results stand right after their call, in the order they came.
- A result without a call goes. An assistant message none of whose calls has a result
  goes; this also holds in the open turn, where a tool loop adds every result before it
  asks for a view. When some calls have results, each other call gets an error result,
  marked in its ``metadata``.
- An assistant message without content goes, as does a system message; one with only
  reasoning stays as long as the assistant message that it led to. An empty tool result
  or user message gets a placeholder text.
- An assistant message of status ``failed`` is a note that no answer came, and goes.
- A turn that failed or was broken off (one of its messages says so) and has no answer
  to show goes, unless it is open or ``keep_failed`` is set. A partial answer is one; an
  assistant message of status ``failed`` only notes that none came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from convmem.memory.turns import is_reasoning_only, pair, turns, unanswered
from convmem.memory.view import DropReason
from convmem.messages import SYSTEM_ROLES, Message

#: Key in ``metadata`` of messages that repair wrote or changed.
MARK = "convmem_repair"
MISSING_RESULT = "No result: the tool call was interrupted."
PLACEHOLDERS = {"tool": "(no output)", "user": "(empty message)"}
_BROKEN = frozenset({"failed", "incomplete"})


@dataclass(frozen=True, slots=True)
class Repaired:
    """``messages`` with, for each, its index in the list that was mended (``origins``;
    None for an added one), and the reason for each ``dropped`` index. ``mended``: a
    provider might have refused the list. ``grown``: a message was added or a
    placeholder put in."""

    messages: list[Message]
    origins: list[int | None]
    dropped: dict[int, DropReason]
    mended: bool
    grown: bool


def repair(
    messages: Sequence[Message],
    *,
    open_from: int | None = None,
    keep_failed: bool = False,
) -> Repaired:
    """Return ``messages`` mended by the rules of this module.

    ``open_from`` is where the open turn starts (None: no turn is open).
    """
    if _all_plain(messages):
        return Repaired(
            messages=list(messages),
            origins=list(range(len(messages))),
            dropped={},
            mended=False,
            grown=False,
        )
    opened = len(messages) if open_from is None else open_from
    work = _Work(messages, keep_failed=keep_failed)
    for start, end in turns(messages):
        work.add_turn(start, end, is_open=end > opened)
    return Repaired(
        messages=work.kept,
        origins=work.origins,
        dropped=work.dropped,
        mended=work.mended,
        grown=work.grown,
    )


@dataclass(slots=True)
class _Work:
    messages: Sequence[Message]
    keep_failed: bool
    kept: list[Message] = field(default_factory=list)
    origins: list[int | None] = field(default_factory=list)
    dropped: dict[int, DropReason] = field(default_factory=dict)
    mended: bool = False
    grown: bool = False

    def add_turn(self, start: int, end: int, *, is_open: bool) -> None:
        """Mend one turn and take it over."""
        if _all_plain(self.messages[start:end]):
            self.kept += self.messages[start:end]
            self.origins += range(start, end)
            return
        order: list[tuple[int | None, Message]]
        order, lost = self._paired(start, end)
        order = self._without_empty(order, lost)
        self.mended = self.mended or bool(lost)
        if not (is_open or self.keep_failed) and self._is_failed(start, end, order):
            for index, message in order:
                if index is not None and message.role not in SYSTEM_ROLES:
                    lost[index] = "incomplete_turn"
            order = [item for item in order if item[1].role in SYSTEM_ROLES]
        self.dropped.update(lost)
        for index, message in order:
            self.origins.append(index)
            self.kept.append(self._filled(message))

    def _paired(
        self, start: int, end: int
    ) -> tuple[list[tuple[int | None, Message]], dict[int, DropReason]]:
        """Return the turn with each result after its call, and what was lost."""
        pairs = pair(self.messages, start, end)
        lost: dict[int, DropReason] = dict.fromkeys(pairs.orphans, "orphan_tool_result")
        order: list[tuple[int | None, Message]] = []
        for index in range(start, end):
            message = self.messages[index]
            if index in pairs.results:
                if pairs.results[index]:
                    order += self._group(index, pairs.results[index])
                else:
                    lost[index] = "unanswered_tool_call"
            elif message.role != "tool":
                order.append((index, message))
        places = [index for index, _ in order if index is not None]
        self.mended = self.mended or places != sorted(places)
        return order, lost

    def _group(
        self, index: int, results: Sequence[int]
    ) -> list[tuple[int | None, Message]]:
        caller = self.messages[index]
        group: list[tuple[int | None, Message]] = [(index, caller)]
        group += [(place, self.messages[place]) for place in results]
        for call in unanswered(caller, [self.messages[place] for place in results]):
            self.mended = self.grown = True
            missing = Message.tool(
                call.id,
                MISSING_RESULT,
                name=call.name,
                is_error=True,
                metadata={MARK: "missing_result"},
            )
            group.append((None, missing))
        return group

    def _without_empty(
        self,
        order: list[tuple[int | None, Message]],
        lost: dict[int, DropReason],
    ) -> list[tuple[int | None, Message]]:
        """Drop empty assistant and system messages, looking from the end at what a
        reasoning message led to."""
        kept: list[tuple[int | None, Message]] = []
        follower = ""  # role of the next message of the turn that stays
        for index, message in reversed(order):
            role = message.role
            droppable = role == "assistant" or role in SYSTEM_ROLES
            leads = follower == "assistant" and is_reasoning_only(message)
            if _is_note(message) and index is not None:
                lost[index] = "incomplete_turn"  # a note that no answer came
                continue
            if droppable and index is not None and message.is_empty and not leads:
                lost[index] = "empty"
                continue
            kept.append((index, message))
            if role not in SYSTEM_ROLES:
                follower = role
        kept.reverse()
        return kept

    def _is_failed(
        self, start: int, end: int, order: Sequence[tuple[int | None, Message]]
    ) -> bool:
        return any(
            self.messages[index].status in _BROKEN for index in range(start, end)
        ) and not any(
            message.role == "assistant" and message.status != "failed"
            for _, message in order
        )

    def _filled(self, message: Message) -> Message:
        placeholder = PLACEHOLDERS.get(message.role)
        if placeholder is None or not message.is_empty:
            return message
        self.mended = self.grown = True
        metadata = {**message.metadata, MARK: "placeholder"}
        return message.replace(content=placeholder, metadata=metadata)


def _is_note(message: Message) -> bool:
    """Return whether the message only notes, for people, that no answer came."""
    return (
        message.role == "assistant"
        and message.status == "failed"
        and not message.tool_calls
    )


def _all_plain(messages: Sequence[Message]) -> bool:
    """Return whether there are only whole texts: the usual case, found fast."""
    for message in messages:
        content = message.content
        if (
            not content
            or not isinstance(content, str)
            or message.tool_calls
            or message.role == "tool"
            or message.status != "complete"
        ):
            return False
    return True
