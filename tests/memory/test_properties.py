"""What holds for every view, over random histories and over real transcripts."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convmem.memory import (
    DefaultMemoryProvider,
    History,
    MessageWindow,
    TokenWindow,
    TurnWindow,
    safe_window,
    violations,
)
from convmem.memory.turns import open_turn
from convmem.messages import SYSTEM_ROLES
from convmem.stores import LocalStore
from convmem.tokens import count_messages
from tests.transcripts import all_transcripts

from .histories import broken_histories, histories, valid_histories

limits = st.one_of(st.integers(0, 4), st.integers(0, 30))
windows = st.one_of(
    st.none(),
    st.builds(
        MessageWindow,
        limits,
        system=st.sampled_from(["all", "latest"]),
        start_on_user=st.booleans(),
    ),
    st.builds(TurnWindow, st.integers(0, 6)),
    st.builds(
        TokenWindow,
        st.one_of(st.integers(0, 60), st.integers(0, 400)),
        system=st.sampled_from(["all", "latest"]),
        start_on_user=st.booleans(),
    ),
)
fresh = itertools.count()
moderate = settings(max_examples=100, deadline=None)


def provider(window=None, **options):
    return DefaultMemoryProvider(LocalStore(namespace="unused"), window, **options)


@moderate
@given(histories, windows, st.booleans())
def test_every_view_is_valid_for_a_provider(messages, window, keep_failed):
    view = provider(window, keep_failed=keep_failed).prepare("c", messages)
    assert violations(view) == []


@moderate
@given(histories, windows, st.booleans())
def test_preparing_twice_changes_nothing(messages, window, keep_failed):
    memory = provider(window, keep_failed=keep_failed)
    once = memory.prepare("c", messages)
    assert memory.prepare("c", once) == once


@moderate
@given(histories, windows)
def test_plan_accounts_for_every_message(messages, window):
    view = provider(window).plan("c", messages)
    shown = [m.position for m in view.messages if m.position is not None]
    dropped = [d.index for d in view.dropped]
    assert dropped == sorted(set(dropped))
    added = [m for m in view.messages if "convmem_repair" in m.metadata]
    missing = [m for m in added if m.metadata["convmem_repair"] == "missing_result"]
    assert len(view.messages) - len(missing) + len(dropped) == len(messages)
    for drop in view.dropped:
        assert drop.message is messages[drop.index]
        assert drop.position not in shown or drop.position is None
    assert provider(window).prepare("c", messages) == list(view.messages)
    assert view.tokens.total == count_messages(view.messages)


@moderate
@given(histories, limits)
def test_a_message_window_shows_at_most_n_besides_the_open_turn(messages, n):
    view = provider(n).plan("c", messages)
    others = [m for m in view.messages if m.role not in SYSTEM_ROLES]
    assert len(others) <= n or view.over_limit
    if view.over_limit:
        assert others[0].role == "user"
        assert sum(m.role == "user" for m in others) == 1


@moderate
@given(histories, st.integers(0, 300))
def test_a_budget_is_kept_unless_the_view_says_so(messages, budget):
    view = provider(TokenWindow(budget)).plan("c", messages)
    if not view.over_limit:
        assert view.tokens.total <= budget
    elif view.tokens.history:
        pytest.fail("over the limit, and yet older turns are shown")


@moderate
@given(valid_histories())
def test_a_valid_history_without_limits_comes_back_as_it_is(messages):
    view = provider().plan("c", messages)
    assert list(view.messages) == messages
    assert view.dropped == () and view.flags == ()


@moderate
@given(broken_histories())
def test_without_repair_and_limits_any_history_comes_back_as_it_is(messages):
    assert provider(repair=False).prepare("c", messages) == messages


@moderate
@given(valid_histories(), limits)
def test_safe_window_alone_keeps_a_valid_history_valid(messages, n):
    window = safe_window(messages, n)
    assert violations(window) == []
    assert safe_window(window, n) == window
    opened = messages[open_turn(messages) :]
    assert [m for m in window if m in opened or m.role in SYSTEM_ROLES] == window or n


@moderate
@given(broken_histories(), windows, st.integers(1, 3))
def test_reading_only_what_the_window_needs_gives_the_same_view(
    messages, window, chunk
):
    """`history` stops reading early; the view must not show it."""
    store = LocalStore(namespace=f"lazy-{next(fresh)}")
    messages = [m for m in messages if m.status != "corrupt"]
    if not messages:
        return
    store.add("c", [m.replace(position=None) for m in messages])
    memory = DefaultMemoryProvider(store, window)
    for limited in memory.windows:
        if not isinstance(limited, MessageWindow):
            limited.first_read = chunk
    everything = store.get("c")
    assert memory.prepare("c", memory.history("c")) == memory.prepare("c", everything)


def _ids(transcript):
    return transcript.name


@pytest.fixture(scope="module")
def real():
    found = all_transcripts()
    if not found:
        pytest.skip("../shared is not here")
    return found


def test_real_transcripts_give_valid_views_for_every_window(real):
    for transcript in real:
        messages = list(transcript.messages)
        size = len(messages)
        for n in {*range(min(size, 25) + 1), *range(25, size, 17), size}:
            view = provider(n).prepare("c", messages)
            assert violations(view) == [], (transcript.name, n)
            assert provider(n).prepare("c", view) == view, (transcript.name, n)


def test_real_transcripts_give_valid_views_for_every_budget_and_turn_count(real):
    for transcript in real:
        messages = list(transcript.messages)
        total = count_messages(messages)
        windows = [TokenWindow(total * part // 7) for part in range(8)]
        windows += [TurnWindow(n) for n in range(6)]
        windows += [MessageWindow(n, start_on_user=True) for n in (1, 2, 5)]
        for window in windows:
            view = provider(window).prepare("c", messages)
            assert violations(view) == [], transcript.name
            assert provider(window).prepare("c", view) == view, transcript.name


def test_views_of_real_transcripts_leave_the_store_untouched(real):
    store = LocalStore(namespace="untouched")
    for transcript in real:
        name = transcript.name
        store.add(name, transcript.messages)
        before = store.get(name)
        for n in (0, 1, 3, len(before)):
            memory = DefaultMemoryProvider(store, n)
            view = memory.plan(name, memory.history(name))
            assert violations(view.messages) == [], (name, n)
        assert store.get(name) == before
        whole = memory.history(name)
        assert isinstance(whole, History) and list(whole) == before
