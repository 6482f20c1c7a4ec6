"""Windows by messages, turns and tokens: the stated edge cases."""

from __future__ import annotations

import pytest

from convmem.exceptions import InvalidWindow
from convmem.memory import (
    Choice,
    DefaultMemoryProvider,
    MessageWindow,
    TokenWindow,
    TurnWindow,
    Window,
    safe_window,
)
from convmem.stores import LocalStore

from .histories import A, C, D, R, S, T, U


def texts(messages):
    return [m.text for m in messages]


def one_each(message):
    return 1


def view(window, messages, **options):
    provider = DefaultMemoryProvider(LocalStore(namespace="unused"), window)
    return provider.plan("c", messages, **options)


TALK = [S("s"), U("1"), A("2"), U("3"), A("4"), U("5"), A("6")]


class TestSafeWindow:
    def test_newest_n_after_the_system_messages(self):
        assert texts(safe_window(TALK, 3)) == ["s", "4", "5", "6"]

    def test_system_and_developer_messages_go_to_the_head_in_order(self):
        messages = [U("1"), S("a"), A("2"), D("b"), U("3")]
        assert texts(safe_window(messages, 10)) == ["a", "b", "1", "2", "3"]

    def test_zero_leaves_system_messages_only_when_all_is_answered(self):
        assert texts(safe_window(TALK, 0)) == ["s"]

    def test_zero_leaves_system_messages_and_the_open_turn(self):
        messages = [*TALK, U("now"), C("x"), T("x")]
        assert safe_window(messages, 0) == [messages[0], *messages[-3:]]

    def test_below_the_open_turn_it_stays_whole(self):
        messages = [*TALK, U("now"), C("x", "y"), T("y"), T("x")]
        for n in (1, 2, 3, 4):
            assert safe_window(messages, n) == [messages[0], *messages[-4:]]

    def test_a_last_call_whose_result_is_still_to_come_is_open(self):
        messages = [*TALK, U("now"), C("x"), T("x"), C("y")]
        assert safe_window(messages, 1) == [messages[0], *messages[-4:]]

    def test_a_result_that_came_late_does_not_open_an_answered_turn(self):
        messages = [*TALK, U("now"), C("x"), A("done"), T("x")]
        found = view(0, messages)
        assert texts(found.messages) == ["s"] and not found.over_limit

    def test_leading_results_go_when_their_call_is_cut_off(self):
        messages = [U("1"), C("x", "y"), T("x"), T("y"), A("2"), U("3"), A("4")]
        assert texts(safe_window(messages, 4)) == ["2", "3", "4"]
        assert texts(safe_window(messages, 5)) == ["2", "3", "4"]
        assert safe_window(messages, 6) == messages[1:]

    def test_empty(self):
        assert safe_window([], 0) == safe_window([], 5) == []

    def test_only_system_messages(self):
        assert texts(safe_window([S("a"), D("b")], 0)) == ["a", "b"]

    def test_larger_than_the_history(self):
        assert safe_window(TALK, 1000) == TALK

    def test_the_list_given_is_not_changed(self):
        messages = [U("1"), S("a")]
        safe_window(messages, 1)
        assert texts(messages) == ["1", "a"]

    @pytest.mark.parametrize("n", [-1, -100, True, False, 2.0, "3", None])
    def test_what_is_no_count_is_refused_by_name(self, n):
        with pytest.raises(InvalidWindow) as caught:
            safe_window(TALK, n)
        assert str(n) in str(caught.value)
        assert caught.value.code == "invalid_window"


class TestMessageWindow:
    def test_dropped_messages_have_a_reason(self):
        messages = [S("s"), U("1"), C("x"), T("x"), A("2"), U("3"), A("4")]
        found = view(4, messages)
        assert [(d.index, d.reason) for d in found.dropped] == [
            (1, "window"),
            (2, "window"),
            (3, "orphan_tool_result"),
        ]
        assert texts(found.messages) == ["s", "2", "3", "4"]

    def test_latest_system_message_only(self):
        messages = [S("old"), U("1"), A("2"), S("new"), U("3")]
        found = view(MessageWindow(10, system="latest"), messages)
        assert texts(found.messages) == ["new", "1", "2", "3"]
        assert [(d.index, d.reason) for d in found.dropped] == [(0, "policy")]

    def test_start_on_user_moves_on_to_a_question(self):
        window = MessageWindow(3, start_on_user=True)
        assert texts(view(window, TALK).messages) == ["s", "5", "6"]
        answered = [U("1"), A("2"), A("3"), A("4")]
        assert view(MessageWindow(2, start_on_user=True), answered).messages == ()

    def test_over_limit_only_when_the_open_turn_is_longer(self):
        messages = [U("1"), A("2"), U("3"), C("x"), T("x")]
        assert view(2, messages).over_limit
        assert not view(3, messages).over_limit
        assert view(2, messages).flags == ("over_limit",)

    @pytest.mark.parametrize("system", ["first", None, 1])
    def test_unknown_system_policy(self, system):
        with pytest.raises(InvalidWindow, match="latest"):
            MessageWindow(1, system=system)

    def test_an_added_error_result_counts_too(self):
        messages = [C("x", "y"), T("x"), U("1"), A("2")]
        found = view(4, messages)
        assert texts(found.messages) == ["1", "2"]
        assert len(view(5, messages).messages) == 5


class TestTurnWindow:
    def test_whole_turns_however_long(self):
        turns = [[U("1")], [U("2"), C("x"), T("x"), A("a")], [U("3"), A("b")]]
        assert view(TurnWindow(2), sum(turns, [])).messages == tuple(
            turns[1] + turns[2]
        )

    def test_the_open_turn_is_one_of_them(self):
        found = view(TurnWindow(2), [*TALK, U("now")])
        assert texts(found.messages) == ["s", "5", "6", "now"]

    def test_zero(self):
        assert texts(view(TurnWindow(0), TALK).messages) == ["s"]
        found = view(TurnWindow(0), [*TALK, U("now")])
        assert texts(found.messages) == ["s", "now"] and found.over_limit

    def test_fewer_turns_than_wanted_keep_what_precedes_the_first(self):
        messages = [A("hello"), U("1"), A("2")]
        assert view(TurnWindow(9), messages).messages == tuple(messages)
        assert texts(view(TurnWindow(1), messages).messages) == ["1", "2"]

    def test_negative_is_refused(self):
        with pytest.raises(InvalidWindow, match="-2"):
            TurnWindow(-2)


class TestTokenWindow:
    def test_an_unbroken_suffix_that_stops_at_the_first_misfit(self):
        sizes = {"s": 1, "1": 1, "2": 50, "3": 2, "4": 2}
        window = TokenWindow(10, counter=lambda m: sizes[m.text])
        found = view(window, [S("s"), U("1"), A("2"), U("3"), A("4")])
        assert texts(found.messages) == ["s", "3", "4"]
        assert [(d.index, d.reason) for d in found.dropped] == [
            (1, "budget"),
            (2, "budget"),
        ]
        assert found.tokens.total == 5 and found.tokens.instructions == 1

    def test_call_and_results_stay_or_go_together(self):
        messages = [U("1"), C("x", "y"), T("x"), T("y"), A("2")]
        for budget, kept in [(1, 1), (2, 1), (3, 1), (4, 4), (5, 5)]:
            found = view(TokenWindow(budget, one_each), messages)
            assert found.messages == tuple(messages[5 - kept :])

    def test_reasoning_goes_with_what_it_led_to(self):
        messages = [U("1"), R("why"), A("2")]
        assert view(TokenWindow(1, one_each), messages).messages == ()
        assert view(TokenWindow(2, one_each), messages).messages == tuple(messages[1:])

    def test_system_messages_count_and_stay(self):
        messages = [S("a"), S("b"), U("1"), A("2")]
        assert texts(view(TokenWindow(3, one_each), messages).messages) == [
            "a",
            "b",
            "2",
        ]
        found = view(TokenWindow(1, one_each), messages)
        assert texts(found.messages) == ["a", "b"] and found.over_limit

    def test_the_open_turn_stays_whole_and_the_view_says_so(self):
        messages = [U("1"), A("2"), U("3" * 4000), C("x"), T("x")]
        found = view(TokenWindow(10), messages)
        assert found.messages == tuple(messages[2:]) and found.over_limit
        assert found.tokens.history == 0 and found.tokens.open_turn > 1000

    def test_everything_too_large(self):
        found = view(TokenWindow(10), [U("1" * 900), A("2" * 900)])
        assert found.messages == () and not found.over_limit
        assert [d.reason for d in found.dropped] == ["budget", "budget"]

    def test_a_result_without_call_at_the_head_is_called_so(self):
        found = view(TokenWindow(100), [T("x"), U("1"), A("2")])
        assert [d.reason for d in found.dropped] == ["orphan_tool_result"]

    @pytest.mark.parametrize("budget", [-1, 1.5, True, "9"])
    def test_what_is_no_budget_is_refused(self, budget):
        with pytest.raises(InvalidWindow):
            TokenWindow(budget)


def test_a_window_of_ones_own_is_one_pure_method():
    class Questions(Window):
        def choose(self, messages, open_from):
            kept = [i for i, m in enumerate(messages) if m.role == "user"]
            gone = set(range(len(messages))) - set(kept)
            return Choice(kept=tuple(kept), dropped=dict.fromkeys(gone, "policy"))

    store = LocalStore(namespace="own-window")
    store.add("c", [U("1"), A("2"), U("3"), A("4")])
    provider = DefaultMemoryProvider(store, Questions())
    found = provider.plan("c", provider.history("c"))
    assert texts(found.messages) == ["1", "3"]
    assert {d.reason for d in found.dropped} == {"policy"}
