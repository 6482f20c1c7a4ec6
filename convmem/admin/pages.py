"""Pages of a transcript by position, newest page first, in a bounded number of
queries whatever the length of the conversation."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import QuerySet

from convmem.admin.pairing import Line, Pairs, pair, turns
from convmem.models import StoredMessage


@dataclass(frozen=True)
class Page:
    """Lines oldest first. ``open_start``, ``open_end``: the first or last turn goes on
    beyond what was read, so that a missing partner may still exist."""

    lines: tuple[Line, ...]
    pairs: Pairs
    has_older: bool = False
    has_newer: bool = False
    open_start: bool = False
    open_end: bool = False

    @property
    def first_position(self) -> int | None:
        return self.lines[0].position if self.lines else None

    @property
    def last_position(self) -> int | None:
        return self.lines[-1].position if self.lines else None


def load_page(
    rows: QuerySet[StoredMessage],
    size: int,
    *,
    before: int | None = None,
    after: int | None = None,
) -> Page:
    """Return the newest ``size`` rows under position ``before``, or the oldest ones
    over ``after``; without either, the newest of all.

    ``rows`` are the messages of one conversation. At most four queries: the page, what
    lies on its other side, and the rest of its first and of its last turn when a tool
    call and its result fall on different pages.
    """
    if after is not None:
        found = list(rows.filter(position__gt=after).order_by("position")[: size + 1])
        has_newer = len(found) > size
        found = found[:size]
        has_older = rows.filter(position__lte=after).exists()
    else:
        older = rows if before is None else rows.filter(position__lt=before)
        found = list(older.order_by("-position")[: size + 1])
        has_older = len(found) > size
        found = found[:size][::-1]
        has_newer = before is not None and rows.filter(position__gte=before).exists()
    lines = [Line.read(row) for row in found]
    return _with_partners(rows, lines, size, has_older=has_older, has_newer=has_newer)


def _with_partners(
    rows: QuerySet[StoredMessage],
    lines: list[Line],
    size: int,
    *,
    has_older: bool,
    has_newer: bool,
) -> Page:
    """Read the partners of the page's calls and results from beside the page."""
    pairs = pair(lines)
    earlier: list[Line] = []
    later: list[Line] = []
    open_start = open_end = False
    if has_older and _lacks_call(lines, pairs):
        earlier, open_start = _turn_before(rows, lines[0].position, 2 * size)
    if has_newer and _lacks_result(lines, pairs):
        later, open_end = _turn_after(rows, lines[-1].position, 2 * size)
    if earlier or later:
        pairs = pair([*earlier, *lines, *later])
    return Page(
        lines=tuple(lines),
        pairs=pairs,
        has_older=has_older,
        has_newer=has_newer,
        open_start=open_start,
        open_end=open_end,
    )


def _lacks_call(lines: list[Line], pairs: Pairs) -> bool:
    first = next(turns(lines), [])
    if first and first[0].opens_turn:
        return False
    return any(line.answers and line.position not in pairs.calls for line in first)


def _lacks_result(lines: list[Line], pairs: Pairs) -> bool:
    last = list(turns(lines))[-1:]
    return any(
        (line.position, index) not in pairs.results
        for turn in last
        for line in turn
        for index in range(len(line.calls))
    )


def _turn_before(
    rows: QuerySet[StoredMessage], position: int, limit: int
) -> tuple[list[Line], bool]:
    """Return the older part of the turn at ``position``, oldest first, and whether it
    goes back further than ``limit`` rows."""
    found: list[Line] = []
    for row in rows.filter(position__lt=position).order_by("-position")[:limit]:
        found.append(Line.read(row))
        if found[-1].opens_turn:
            return found[::-1], False
    return found[::-1], len(found) == limit


def _turn_after(
    rows: QuerySet[StoredMessage], position: int, limit: int
) -> tuple[list[Line], bool]:
    """Return the newer part of the turn at ``position``, and whether it goes on after
    ``limit`` rows."""
    found: list[Line] = []
    for row in rows.filter(position__gt=position).order_by("position")[:limit]:
        if row.role == "user":
            return found, False
        found.append(Line.read(row))
    return found, len(found) == limit
