"""Ten times the messages cost about ten times the work: no rule looks at pairs."""

from __future__ import annotations

import sys
import time

import pytest

from convmem.memory import (
    DefaultMemoryProvider,
    MemoryProvider,
    MessageWindow,
    TokenWindow,
    TurnWindow,
    safe_window,
    violations,
)
from convmem.stores import LocalStore

from .histories import A, C, R, S, T, U, numbered

SMALL, LARGE = 150, 1_500
#: Linear is 10; quadratic would be near 100.
MOST = 13


def lines(work, messages):
    """The number of lines of the memory's own code that ``work`` runs."""
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        if "convmem/memory" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work(messages)
    finally:
        sys.settrace(before)
    return count


def growth(work, shape):
    small, large = numbered(shape(SMALL)), numbered(shape(LARGE))
    return lines(work, large) / lines(work, small)


def seconds(work, messages):
    """Processor time, the best of three."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        work(messages)
        best = min(best, time.process_time() - start)
    return best


def talk(size):
    return [m for n in range(size // 2) for m in (U(f"q{n}"), A(f"a{n}"))]


def one_long_open_turn(size):
    steps = (m for n in range(size // 2) for m in (C(f"k{n}"), T(f"k{n}")))
    return [U("go"), *steps]


def one_id_over_and_over(size):
    return [U("go"), *[C("k") for _ in range(size // 2)], *([T("k")] * (size // 2))]


def one_wide_call(size):
    ids = [f"k{n}" for n in range(size)]
    return [U("go"), C(*ids), *map(T, ids[: size // 2])]


def nothing_fits_together(size):
    return [m for n in range(size // 4) for m in (T("x"), R(), C("y"), A(""))]


def reasoning_only(size):
    return [U("go"), *[R()] * size]


def all_superseded(size):
    return [A(f"a{n}", supersedes=(n,)) for n in range(1, size)]


def prompts(size):
    return [S(f"s{n}") for n in range(size)]


shapes = [
    talk,
    one_long_open_turn,
    one_id_over_and_over,
    one_wide_call,
    nothing_fits_together,
    reasoning_only,
    all_superseded,
    prompts,
]
windows = {
    "none": None,
    "messages": MessageWindow(10_000),
    "one message": MessageWindow(1),
    "turns": TurnWindow(2_000),
    "tokens": TokenWindow(1_000_000),
}


@pytest.mark.parametrize("shape", shapes, ids=lambda shape: shape.__name__)
@pytest.mark.parametrize("window", windows)
def test_planning_is_linear(shape, window):
    provider = DefaultMemoryProvider(LocalStore(namespace="f"), windows[window])

    def work(messages):
        return provider.plan("c", messages)

    assert growth(work, shape) < MOST


@pytest.mark.parametrize("shape", shapes, ids=lambda shape: shape.__name__)
def test_safe_window_is_linear(shape):
    assert growth(lambda messages: safe_window(messages, 100), shape) < MOST


@pytest.mark.parametrize("shape", shapes, ids=lambda shape: shape.__name__)
def test_ten_thousand_messages_hide_no_quadratic_work(shape):
    """Copies and searches inside one line: 16 times the messages, at most 100 times
    the processor's time (quadratic would be 256)."""
    provider = DefaultMemoryProvider(LocalStore(namespace="f"), TokenWindow(10**9))

    def work(messages):
        return provider.plan("c", messages)

    small, large = numbered(shape(625)), numbered(shape(10_000))
    assert seconds(work, large) / seconds(work, small) < 100
    assert violations(work(large).messages) == []


def test_comparing_a_foreign_view_is_linear():
    """A provider that shows copies without positions, found again by what they say."""

    class Copying(DefaultMemoryProvider):
        plan = MemoryProvider.plan

        def prepare(self, conversation_id, messages, *, open_from=None):
            return [m.replace(position=None) for m in messages[::-1][1:]]

    provider = Copying(LocalStore(namespace="f"))

    def work(messages):
        return provider.plan("c", messages)

    small, large = numbered(talk(625)), numbered(talk(10_000))
    assert seconds(work, large) / seconds(work, small) < 100
    assert [d.index for d in work(large).dropped] == [9_999]


def test_reading_a_large_budget_in_chunks_is_linear():
    class Counted(LocalStore):
        handed_out = 0

        def newest(self, conversation_id, limit, *, before=None):
            found = super().newest(conversation_id, limit, before=before)
            self.handed_out += len(found)
            return found

    store = Counted(namespace="linear")
    store.add("c", talk(10_000))
    provider = DefaultMemoryProvider(store, TokenWindow(10**9))
    assert len(provider.history("c")) == 10_000
    assert store.handed_out <= 10_000
