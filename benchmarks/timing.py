"""Interleaved timing: contenders take turns, so that drift hits all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

Call = Callable[[], object]


def medians(
    calls: Mapping[str, Call], *, rounds: int, warm: int = 5
) -> dict[str, float]:
    """Return each call's median time in microseconds over ``rounds`` turns."""
    for call in calls.values():
        for _ in range(warm):
            call()
    samples: dict[str, list[int]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter_ns()
            call()
            samples[name].append(time.perf_counter_ns() - start)
    return {name: statistics.median(times) / 1000 for name, times in samples.items()}
