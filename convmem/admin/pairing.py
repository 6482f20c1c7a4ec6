"""Which tool result answers which call, as a reader of the transcript sees it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from convmem.exceptions import InvalidMessage
from convmem.messages import Message, ToolCall, decode
from convmem.models import StoredMessage


@dataclass(frozen=True)
class Line:
    """One stored row with its message, or None where the row cannot be read."""

    row: StoredMessage
    message: Message | None

    @classmethod
    def read(cls, row: StoredMessage) -> Line:
        """Return the line of ``row``; never raises for a broken body."""
        try:
            return cls(row, decode(row.body))
        except InvalidMessage:
            return cls(row, None)

    @property
    def position(self) -> int:
        return self.row.position

    @property
    def opens_turn(self) -> bool:
        return self.row.role == "user"

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return self.message.tool_calls if self.message else ()

    @property
    def answers(self) -> str | None:
        """The id of the call that this line answers, or None."""
        if self.message is None or self.message.role != "tool":
            return None
        return self.message.tool_call_id


@dataclass(frozen=True)
class Place:
    """A tool call: the line that made it and its index there."""

    line: Line
    index: int

    @property
    def call(self) -> ToolCall:
        return self.line.calls[self.index]


@dataclass(frozen=True)
class Pairs:
    """Results by the call they answer (position, index), calls by the position of
    their result, and the positions of ``replaced`` replies."""

    results: dict[tuple[int, int], Line] = field(default_factory=dict)
    calls: dict[int, Place] = field(default_factory=dict)
    replaced: frozenset[int] = frozenset()


def turns(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Split ``lines`` before each user message."""
    turn: list[Line] = []
    for line in lines:
        if line.opens_turn and turn:
            yield turn
            turn = []
        turn.append(line)
    if turn:
        yield turn


def superseded(lines: Iterable[Line]) -> frozenset[int]:
    """Return the positions of replies that a later one replaced."""
    found: set[int] = set()
    for line in lines:
        if line.row.status == "superseded":
            found.add(line.position)
        if line.message is not None:
            found.update(line.message.supersedes)
    return frozenset(found)


def pair(lines: Sequence[Line]) -> Pairs:
    """Pair results with earlier calls of the same turn, by id.

    Ids may repeat across turns. The same id twice in one turn pairs in order. A call
    of a replaced reply is answered only when no other call has the id.
    """
    pairs = Pairs(replaced=superseded(lines))
    for turn in turns(lines):
        _pair_turn(turn, pairs)
    return pairs


def _pair_turn(turn: Sequence[Line], pairs: Pairs) -> None:
    waiting: dict[str, list[Place]] = {}
    for line in turn:
        for index, call in enumerate(line.calls):
            waiting.setdefault(call.id, []).append(Place(line, index))
        if line.answers is None or not waiting.get(line.answers):
            continue
        places = waiting[line.answers]
        live = (p for p in places if p.line.position not in pairs.replaced)
        place = next(live, places[0])
        places.remove(place)
        pairs.results[place.line.position, place.index] = line
        pairs.calls[line.position] = place
