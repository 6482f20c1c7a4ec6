"""Repair, rule by rule, and the checker it is held against."""

from __future__ import annotations

import pytest

from convmem.memory import DefaultMemoryProvider, is_valid_for_provider, repair
from convmem.memory import violations as violations_of
from convmem.messages import Message, ReasoningPart, RefusalPart, TextPart
from convmem.stores import LocalStore

from .histories import A, C, D, R, S, T, U, numbered


def plan(messages, **options):
    provider = DefaultMemoryProvider(LocalStore(namespace="unused"), **options)
    return provider.plan("c", messages)


def reasons(view):
    return [(d.index, d.reason) for d in view.dropped]


def test_results_in_any_order_are_left_as_they_are():
    messages = [U(), C("x", "y", "z"), T("z"), T("x"), T("y"), A()]
    view = plan(messages)
    assert list(view.messages) == messages and view.flags == ()


def test_the_same_id_twice_pairs_by_position():
    messages = [U(), C("k", "k"), T("k", "first"), T("k", "second"), A()]
    assert list(plan(messages).messages) == messages


def test_an_id_may_be_used_again_in_a_later_turn():
    messages = [U(), C("k"), T("k"), A(), U(), C("k"), T("k"), A()]
    assert list(plan(messages).messages) == messages


def test_an_id_may_be_used_again_in_the_same_turn():
    messages = [U(), C("k"), T("k", "1"), C("k"), T("k", "2"), A()]
    assert list(plan(messages).messages) == messages


def test_a_result_is_not_paired_with_a_call_of_another_turn():
    messages = [U("1"), C("k"), U("2"), T("k"), A()]
    view = plan(messages)
    assert list(view.messages) == [messages[0], messages[2], messages[4]]
    assert reasons(view) == [(1, "unanswered_tool_call"), (3, "orphan_tool_result")]


def test_a_result_before_its_call_is_an_orphan():
    messages = [U(), T("k"), C("k"), T("k"), A()]
    assert reasons(plan(messages)) == [(1, "orphan_tool_result")]


def test_one_result_too_many_is_an_orphan():
    messages = [U(), C("k"), T("k", "1"), T("k", "2"), A()]
    assert reasons(plan(messages)) == [(3, "orphan_tool_result")]


def test_a_half_answered_group_is_completed_by_marked_errors():
    messages = numbered([U(), C("x", "y", "z"), T("y"), A()])
    view = plan(messages)
    assert [m.tool_call_id for m in view.messages] == [None, None, "y", "x", "z", None]
    for added in view.messages[3:5]:
        assert added.is_error and added.text and added.position is None
        assert added.metadata == {"convmem_repair": "missing_result"}
        assert added.name == f"tool_{added.tool_call_id}"
    assert view.repaired and view.dropped == ()


def test_the_same_id_twice_with_one_result_is_completed_once():
    view = plan([U(), C("k", "k"), T("k"), A()])
    assert [m.is_error for m in view.messages if m.role == "tool"] == [False, True]


def test_calls_without_any_result_are_left_out():
    messages = [U(), C("x", "y", text="let me see"), A()]
    view = plan(messages)
    assert list(view.messages) == [messages[0], messages[2]]
    assert reasons(view) == [(1, "unanswered_tool_call")] and view.repaired


def test_results_move_to_their_call():
    messages = [U(), C("x"), A("one moment"), T("x"), A("done")]
    view = plan(messages)
    assert list(view.messages) == [messages[i] for i in (0, 1, 3, 2, 4)]
    assert view.repaired and view.dropped == ()


def test_a_system_message_between_call_and_result_comes_after():
    messages = [U(), C("x"), S("note"), T("x"), A()]
    assert list(plan(messages).messages) == [messages[i] for i in (0, 1, 3, 2, 4)]


def test_an_unanswered_call_of_the_open_turn_is_left_out_of_the_view_only():
    messages = [U(), C("x"), T("x"), C("y")]
    view = plan(messages)
    assert list(view.messages) == messages[:3]
    assert list(plan([*messages, T("y")]).messages) == [*messages, T("y")]


@pytest.mark.parametrize("content", ["", None, (), (TextPart(text=""),)])
def test_empty_answers_go(content):
    messages = [U("1"), A(content), U("2")]
    view = plan(messages)
    assert list(view.messages) == [messages[0], messages[2]]
    assert reasons(view) == [(1, "empty")]


def test_a_refusal_is_an_answer():
    messages = [U("1"), A((RefusalPart(text="No."),)), U("2")]
    assert list(plan(messages).messages) == messages


def test_empty_system_messages_go():
    assert reasons(plan([S(""), D("rules"), U()])) == [(0, "empty")]


@pytest.mark.parametrize("content", ["", (), (TextPart(text=""),)])
def test_empty_results_and_questions_get_a_placeholder(content):
    messages = numbered([U(content), C("x"), T("x", content, is_error=True), A()])
    view = plan(messages)
    question, _, result, _ = view.messages
    assert question.text == "(empty message)" and question.position == 1
    assert result.text == "(no output)" and result.position == 3 and result.is_error
    assert result.metadata == {"convmem_repair": "placeholder"}
    assert view.repaired and view.dropped == ()


def test_reasoning_stays_with_the_message_it_led_to():
    messages = [U(), R(), C("x"), T("x"), R("a"), R("b"), A(), U("2")]
    assert list(plan(messages).messages) == messages


def test_reasoning_goes_with_the_message_it_led_to():
    messages = [U("1"), R(), C("x"), U("2"), R(), A(""), U("3"), R()]
    view = plan(messages)
    assert list(view.messages) == [messages[0], messages[2 + 1], messages[6]]
    assert reasons(view) == [
        (1, "empty"),
        (2, "unanswered_tool_call"),
        (4, "empty"),
        (5, "empty"),
        (7, "empty"),
    ]


def test_reasoning_inside_a_message_is_left_alone():
    answer = A((ReasoningPart(text="hm", signature="s"), TextPart(text="yes")))
    assert list(plan([U(), answer]).messages) == [U(), answer]


class TestFailedTurns:
    FAILED = (U("lost", status="failed"),)
    NOTED = (U("lost"), A("(no answer)", status="failed"))
    BROKEN_CALL = (U("lost", status="incomplete"), C("x", status="incomplete"))

    @pytest.mark.parametrize("turn", [FAILED, NOTED, BROKEN_CALL])
    def test_without_an_answer_it_is_left_out(self, turn):
        messages = [U("1"), A("2"), *turn, U("3")]
        view = plan(messages)
        assert [m.text for m in view.messages] == ["1", "2", "3"]
        assert view.dropped[0].reason == "incomplete_turn"

    def test_asked_for_it_is_shown(self):
        messages = [U("1"), A("2"), *self.FAILED, U("3")]
        view = plan(messages, keep_failed=True)
        assert list(view.messages) == messages and view.flags == ()

    def test_leaving_it_out_is_policy_and_no_repair(self):
        assert plan([*self.FAILED, U("3")]).flags == ()

    def test_a_partial_answer_is_an_answer(self):
        turn = [U("q", status="incomplete"), A("half an ans", status="incomplete")]
        assert list(plan([*turn, U("3")]).messages) == [*turn, U("3")]

    def test_results_that_were_got_are_shown(self):
        turn = [U("q", status="incomplete"), C("x"), T("x")]
        assert list(plan([*turn, U("3")]).messages) == [*turn, U("3")]

    def test_the_open_turn_is_never_left_out(self):
        messages = [U("1"), A("2"), U("again", status="failed")]
        assert list(plan(messages).messages) == messages

    def test_system_messages_inside_it_stay(self):
        messages = [U("lost", status="failed"), S("new rules"), U("3")]
        assert list(plan(messages).messages) == messages[1:]

    def test_an_unanswered_question_that_is_not_marked_stays(self):
        messages = [U("1"), U("2"), A("3")]
        assert list(plan(messages).messages) == messages


def test_superseded_replies_and_their_results_go():
    messages = numbered([U(), C("x"), T("x"), A("better", supersedes=(2,)), U("next")])
    view = plan(messages)
    assert list(view.messages) == [messages[0], messages[3], messages[4]]
    assert reasons(view) == [(1, "superseded"), (2, "orphan_tool_result")]


def test_superseded_needs_the_position_and_not_the_index():
    messages = numbered([U(), A("old"), A("new", supersedes=(11,))], first=10)
    assert [m.text for m in plan(messages).messages] == ["question", "new"]


def test_corrupt_rows_go():
    messages = numbered([U("1"), A("", status="corrupt"), U("2")])
    view = plan(messages)
    assert reasons(view) == [(1, "corrupt")] and not view.repaired


def test_repair_alone_reports_where_each_message_came_from():
    result = repair([U(), C("x", "y"), T("x"), A("")])
    assert result.origins == [0, 1, 2, None]
    assert result.dropped == {3: "empty"}
    assert result.mended and result.grown


@pytest.mark.parametrize(
    ("messages", "part"),
    [
        ([T("x")], "answers no call"),
        ([U(), C("x")], "has no result"),
        ([U(), C("x", "y"), T("x"), U()], "call 'y' has no result"),
        ([U(), C("x"), A(), T("x")], "answers no call"),
        ([U(), C("x"), T("x"), T("x")], "answers no call"),
        ([U(), A("")], "is empty"),
        ([U(), C("x"), T("x", "")], "is empty"),
        ([U("")], "is empty"),
        ([U(), R()], "leads to nothing"),
        ([U(), R(), U()], "leads to nothing"),
        ([U("", status="corrupt")], "cannot be read"),
    ],
)
def test_the_checker_names_what_is_wrong(messages, part):
    assert any(part in sentence for sentence in violations_of(messages))
    assert not is_valid_for_provider(messages)


def test_the_checker_accepts_what_is_right():
    assert is_valid_for_provider([])
    assert is_valid_for_provider(
        [S(), U(), R(), C("k", "k"), T("k"), T("k"), R(), S("x"), A(), U()]
    )
    assert is_valid_for_provider([Message.user("a"), Message.user("b")])
