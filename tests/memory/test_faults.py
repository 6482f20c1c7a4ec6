"""Faults that memory systems are known for, each as a test named by its kind."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from convmem.exceptions import (
    IdempotencyConflict,
    InvalidConversationId,
    StoreBusy,
)
from convmem.memory import (
    DefaultMemoryProvider,
    MessageWindow,
    TokenWindow,
    TurnWindow,
    safe_window,
    violations,
)
from convmem.messages import SYSTEM_ROLES, Message
from convmem.models import StoredMessage
from convmem.stores import DatabaseStore, LocalStore

from .histories import A, C, S, T, U

pytestmark = pytest.mark.django_db


@pytest.fixture(params=["local", "database"])
def store(request):
    if request.param == "local":
        return LocalStore(namespace=request.node.nodeid)
    return DatabaseStore(namespace="faults")


def view_of(store, window=None, **options):
    provider = DefaultMemoryProvider(store, window, **options)
    return list(provider.plan("c", provider.history("c")).messages)


def texts(messages):
    return [m.text for m in messages]


def bare(messages):
    return [m.replace(position=None, created_at=None) for m in messages]


GROUPS = [
    U("1"),
    C("x"),
    T("x"),
    A("2"),
    U("3"),
    C("y", "z"),
    T("z"),
    T("y"),
    A("4"),
]


# --- trimming ---


class TestTrimmingByGroup:
    """A window must not part a tool call from its results."""

    def test_a_view_never_begins_with_a_tool_result_while_messages_come(self, store):
        for message in [U("1"), C("x"), T("x"), A("2"), U("3")]:
            store.add("c", [message])
            view = view_of(store, 3)
            assert violations(view) == []
            assert not view or view[0].role != "tool"
        assert texts(view_of(store, 3)) == ["2", "3"]

    def test_results_go_with_their_call(self):
        assert texts(safe_window([U("1"), C("x"), T("x"), A("2")], 2)) == ["2"]

    def test_parallel_results_go_together(self):
        answered = [U("1"), C("x", "y"), T("x"), T("y"), A("2")]
        assert texts(safe_window(answered, 2)) == ["2"]
        assert safe_window([C("x", "y"), T("x"), T("y")], 2) == []

    def test_a_budget_that_ends_inside_results_drops_all_of_them(self):
        messages = [U("1"), C("x", "y"), T("x"), T("y"), A("2")]
        provider = DefaultMemoryProvider(
            LocalStore(namespace="f"), TokenWindow(2, counter=lambda m: 1)
        )
        assert texts(provider.prepare("c", messages)) == ["2"]

    def test_keeping_the_last_message_keeps_its_whole_turn(self):
        messages = [S("s"), U("1"), C("x"), T("x"), C("y"), T("y")]
        for window in (MessageWindow(1), TokenWindow(0), TurnWindow(0)):
            provider = DefaultMemoryProvider(LocalStore(namespace="f"), window)
            view = provider.plan("c", messages)
            assert list(view.messages) == messages and view.over_limit

    @pytest.mark.parametrize("limit", range(1, len(GROUPS) + 1))
    def test_every_limit_on_one_history_gives_a_valid_view(self, limit):
        assert violations(safe_window(GROUPS, limit)) == []
        assert violations(safe_window(GROUPS[:-1], limit)) == []

    def test_limits_count_turns_and_not_items(self):
        turns = [[U("1")], [U("2"), C("x"), T("x"), A("a")], [U("3"), A("b")]]
        provider = DefaultMemoryProvider(LocalStore(namespace="f"), TurnWindow(2))
        view = provider.prepare("c", sum(turns, []))
        assert len(view) == 6 and view == turns[1] + turns[2]

    def test_a_view_can_be_made_to_start_at_a_user_message(self):
        window = MessageWindow(8, start_on_user=True)  # lands on the first call
        provider = DefaultMemoryProvider(LocalStore(namespace="f"), window)
        assert provider.prepare("c", GROUPS) == GROUPS[4:]

    @pytest.mark.parametrize("cut", range(len(GROUPS)))
    def test_after_any_prefix_was_cut_away_the_view_is_valid(self, cut):
        provider = DefaultMemoryProvider(LocalStore(namespace="f"))
        assert violations(provider.prepare("c", GROUPS[cut:])) == []

    def test_nothing_fits_and_nothing_there_are_no_errors(self):
        assert safe_window([], 3) == []
        for messages in ([], [U("x" * 100_000)], [U("x" * 100_000), A("y" * 100_000)]):
            provider = DefaultMemoryProvider(LocalStore(namespace="f"), TokenWindow(10))
            view = provider.plan("c", messages)
            assert view.over_limit == (len(messages) == 1)
            assert list(view.messages) == messages[: len(messages) % 2]

    def test_a_window_does_not_evict_the_system_prompt(self, store):
        store.add("c", [S("rules")])
        store.add("c", [m for i in range(50) for m in (U(f"q{i}"), A(f"a{i}"))])
        assert texts(view_of(store, 2)) == ["rules", "q49", "a49"]

    def test_of_a_batch_with_one_timestamp_the_newest_stay(self, store):
        at = datetime(2030, 1, 1, tzinfo=UTC)
        store.add("c", [U(str(n), created_at=at) for n in range(1, 13)])
        assert texts(view_of(store, 10)) == [str(n) for n in range(3, 13)]


# --- healing ---


class TestHealingOnRead:
    """One bad pair must not poison a conversation, and no row is rewritten."""

    def test_a_call_without_result_heals_without_touching_rows(self, store):
        store.add("c", [U("1"), C("x"), U("2")])
        before = store.get("c")
        assert texts(view_of(store)) == ["1", "2"]
        assert store.get("c") == before and len(before) == 3

    def test_a_restart_between_parallel_results(self, store):
        store.add("c", [U("1"), C("x", "y"), T("x")])
        store.add("c", [U("2")])
        view = view_of(store)
        assert violations(view) == []
        assert [(m.tool_call_id, m.is_error) for m in view if m.role == "tool"] == [
            ("x", False),
            ("y", True),
        ]

    def test_missing_results_and_missing_calls_both_heal(self, store):
        store.add("c", [C("x", "y"), T("x"), T("lost"), U("1")])
        view = view_of(store)
        assert violations(view) == []
        assert [m.tool_call_id for m in view] == [None, "x", "y", None]

    def test_parallel_results_in_another_order_are_left_alone(self, store):
        stored = store.add("c", [U("1"), C("x", "y"), T("y"), T("x"), A("2")])
        assert view_of(store) == stored

    def test_one_id_twice_in_one_answer_is_two_pairs(self, store):
        stored = store.add("c", [U("1"), C("k", "k"), T("k", "a"), T("k", "b")])
        assert view_of(store) == stored

    def test_empty_texts_do_not_reach_a_provider(self, store):
        store.add("c", [U("1"), A(""), U("2"), C("x"), T("x", ""), A("3")])
        view = view_of(store)
        assert texts(view) == ["1", "2", "", "(no output)", "3"]
        assert violations(view) == []

    def test_a_failed_turn_is_left_out_unless_asked_for(self, store):
        store.add("c", [U("1", status="failed"), U("2"), A("3")])
        assert texts(view_of(store)) == ["2", "3"]
        assert texts(view_of(store, keep_failed=True)) == ["1", "2", "3"]

    def test_one_corrupt_row_does_not_hide_the_others(self):
        store = DatabaseStore(namespace="faults")
        store.add("c", [U("1"), A("2"), U("3")])
        StoredMessage.objects.filter(position=2).update(body='{"role": "assis')
        provider = DefaultMemoryProvider(store)
        view = provider.plan("c", provider.history("c"))
        assert texts(view.messages) == ["1", "3"]
        assert [(d.position, d.reason) for d in view.dropped] == [(2, "corrupt")]
        assert [m.status for m in store.get("c")] == [
            "complete",
            "corrupt",
            "complete",
        ]


# --- keeping ---


class TestKeepingEverything:
    def test_all_roles_are_stored_with_their_ids(self, store):
        given = [S("s"), U("1"), C("x", "y"), T("y"), T("x", is_error=True), A("2")]
        DefaultMemoryProvider(store).append("c", given)
        assert bare(store.get("c")) == given

    def test_the_store_holds_more_than_the_window(self, store):
        provider = DefaultMemoryProvider(store, 5)
        for n in range(15):
            provider.append("c", [U(f"q{n}"), A(f"a{n}")])
        assert len(store.get("c")) == 30
        assert texts(view_of(store, 5)) == ["a12", "q13", "a13", "q14", "a14"]

    def test_a_second_turn_stores_only_what_is_new(self, store):
        provider = DefaultMemoryProvider(store)
        for n in (1, 2):
            history = provider.history("c")
            turn = [U(f"q{n}")]
            assert texts(provider.prepare("c", history + turn))[-1] == f"q{n}"
            provider.append("c", [*turn, A(f"a{n}")])
        assert texts(store.get("c")) == ["q1", "a1", "q2", "a2"]

    def test_a_question_without_answer_is_kept(self, store):
        provider = DefaultMemoryProvider(store)
        provider.append("c", [U("lost?", status="failed")])
        assert texts(store.get("c")) == ["lost?"]
        assert texts(view_of(store)) == ["lost?"]

    def test_times_are_kept_and_can_be_read(self, store):
        before = timezone.now()
        (first,) = store.add("c", [U("1")])
        assert before <= first.created_at <= timezone.now()
        time.sleep(0.01)
        store.add("c", [A("2")])
        again = store.get("c")
        assert again[0].created_at == first.created_at < again[1].created_at
        assert all(m.created_at.tzinfo is not None for m in view_of(store))

    def test_order_does_not_hang_on_the_clock(self, store):
        frozen = datetime(2030, 1, 1, tzinfo=UTC)
        for n in range(50):
            store.add("c", [U(str(n), created_at=frozen)])
        assert texts(view_of(store)) == [str(n) for n in range(50)]
        positions = [m.position for m in store.get("c")]
        assert positions == sorted(set(positions))

    def test_order_survives_a_changed_row(self):
        store = DatabaseStore(namespace="faults")
        store.add("c", [U("1"), A("2"), U("3")])
        for row in StoredMessage.objects.filter(position=2):
            row.save()
        assert texts(view_of(store)) == ["1", "2", "3"]


class TestUnstorableText:
    """U+0000 and lone surrogates become U+FFFD, and the message says so."""

    @pytest.mark.parametrize("bad", ["a\x00b", "a\ud83db", "\udfff"])
    def test_it_is_stored_by_the_rule_and_later_turns_are_saved(self, store, bad):
        provider = DefaultMemoryProvider(store)
        (stored,) = provider.append("c", [U(bad)])
        wanted = "".join("�" if c in "\x00\ud83d\udfff" else c for c in bad)
        assert stored.text == wanted and stored.sanitized
        provider.append("c", [A("ok")])
        assert texts(provider.history("c")) == [wanted, "ok"]


class TestExactIds:
    def test_ids_that_differ_by_case_or_a_space_are_apart(self, store):
        for name in ("t", "t ", "T"):
            store.add(name, [U(f"<{name}>")])
        for name in ("t", "t ", "T"):
            assert texts(store.get(name)) == [f"<{name}>"]

    def test_ids_that_are_too_long_are_refused_and_not_cut(self, store):
        store.add("x" * 255, [U("fits")])
        with pytest.raises(InvalidConversationId, match="300"):
            store.add("x" * 300, [U("too long")])
        assert texts(store.get("x" * 255)) == ["fits"]


# --- repeating ---


class TestAppendingAgain:
    def test_a_lost_answer_and_a_replay_add_nothing(self, store):
        provider = DefaultMemoryProvider(store)
        batch = [U("1"), C("x"), T("x"), A("2")]
        lost = provider.append("c", batch, key="run-1")
        again = provider.append("c", batch, key="run-1")
        assert again == lost == provider.history("c")

    def test_one_key_twice_is_one_row(self, store):
        for _ in range(2):
            DefaultMemoryProvider(store).append("c", ["hello"], key="k")
        assert len(store.get("c")) == 1

    def test_one_key_with_another_body_is_a_conflict(self, store):
        provider = DefaultMemoryProvider(store)
        provider.append("c", ["one"], key="k")
        with pytest.raises(IdempotencyConflict) as caught:
            provider.append("c", ["two"], key="k")
        assert caught.value.status == 409
        assert texts(store.get("c")) == ["one"]

    def test_a_write_that_failed_is_tried_again_without_the_tool(self, store):
        """The result is at hand: only the append is repeated, under its key."""
        ran = []

        def tool():
            ran.append("once")
            return T("x", "done")

        class Unlucky(DefaultMemoryProvider):
            broken = True

            def append(self, conversation_id, messages, *, key=None):
                if messages[0].role == "tool" and self.broken:
                    type(self).broken = False
                    raise StoreBusy("The database is locked.")
                return super().append(conversation_id, messages, key=key)

        provider = Unlucky(store)
        provider.append("c", [U("1"), C("x")], key="run:0")
        result = tool()
        with pytest.raises(StoreBusy):
            provider.append("c", [result], key="run:1")
        assert texts(view_of(store)) == ["1"]  # valid in between as well
        provider.append("c", [result], key="run:1")
        provider.append("c", [result], key="run:1")
        assert ran == ["once"]
        assert bare(view_of(store)) == [U("1"), C("x"), T("x", "done")]

    def test_a_tool_that_was_cancelled_leaves_a_valid_view(self, store):
        """What a cancelled loop had stored so far can be continued."""
        provider = DefaultMemoryProvider(store)

        async def loop(running):
            await provider.aappend("c", [U("1"), C("x")])
            running.set()
            await asyncio.sleep(60)
            await provider.aappend("c", [T("x")])

        async def cancelled():
            running = asyncio.Event()
            task = asyncio.ensure_future(loop(running))
            await running.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await provider.ahistory("c")

        history = async_to_sync(cancelled)()
        view = provider.prepare("c", history + [U("2")])
        assert violations(view) == []
        assert texts(view) == ["1", "2"]


class TestSystemPromptOfTheCall:
    def test_of_stored_prompts_only_the_latest_may_stay(self, store):
        store.add("c", [S("old rules"), U("1"), A("2"), S("new rules"), U("3")])
        view = view_of(store, MessageWindow(50, system="latest"))
        assert [m.text for m in view if m.role in SYSTEM_ROLES] == ["new rules"]

    def test_a_prompt_given_for_a_call_is_not_stored(self, store):
        """Instructions stand before the view and are no part of what is appended."""
        provider = DefaultMemoryProvider(store)
        for prompt in ("first rules", "second rules"):
            shown = [
                Message.system(prompt),
                *provider.prepare("c", provider.history("c") + [U("q")]),
            ]
            assert [m.text for m in shown if m.role == "system"] == [prompt]
            provider.append("c", [U("q"), A("a")])
        assert {m.role for m in store.get("c")} == {"user", "assistant"}


def test_trimming_twice_is_a_no_op_under_the_same_counter():
    window = TokenWindow(200)
    provider = DefaultMemoryProvider(LocalStore(namespace="f"), window)
    messages = [m for n in range(40) for m in (U("問" * n), A("answer " * n))]
    once = provider.plan("c", messages)
    twice = provider.plan("c", list(once.messages))
    assert twice.messages == once.messages and twice.dropped == ()
    assert twice.tokens == once.tokens and once.tokens.total <= 200
