"""Interleaved timing: the floor and one contender take turns, so that drift hits both
and no third party's work cools their caches."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

Call = Callable[[], object]
#: Seconds that one pair may take; slow contenders get fewer rounds.
BUDGET = 4.0
FEWEST = 5


class Pair(NamedTuple):
    """Medians of a contender and of the floor beside it, in microseconds."""

    time: float
    floor: float

    @property
    def ratio(self) -> float:
        return self.time / self.floor


def compare(floor: Call, call: Call, *, rounds: int, warm: int = 5) -> Pair:
    """Run both in turns, at most ``rounds`` times or `BUDGET` seconds."""
    end = time.perf_counter() + BUDGET
    for _ in range(warm):
        floor()
        call()
        if time.perf_counter() > end:
            break
    floors: list[int] = []
    times: list[int] = []
    for turn in range(rounds):
        if turn >= FEWEST and time.perf_counter() > end:
            break
        floors.append(_timed(floor))
        times.append(_timed(call))
    return Pair(statistics.median(times) / 1000, statistics.median(floors) / 1000)


def _timed(call: Call) -> int:
    start = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - start
