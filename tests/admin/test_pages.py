"""Pages by position, and pairs of calls and results on them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convmem.admin.pages import load_page
from convmem.admin.pairing import Line, pair
from convmem.messages import Message, ToolCall, encode
from convmem.models import StoredMessage


def assistant(*ids: str, **fields) -> Message:
    calls = tuple(ToolCall(id=one, name="look") for one in ids)
    return Message.assistant(None, tool_calls=calls, **fields)


def lines(*messages: Message, statuses: dict[int, str] | None = None) -> list[Line]:
    return [
        Line.read(
            StoredMessage(
                position=position,
                role=message.role,
                status=(statuses or {}).get(position, message.status),
                body=encode(message),
            )
        )
        for position, message in enumerate(messages, 1)
    ]


def pairs_of(*messages: Message, **kwargs) -> dict[int, tuple[int, int]]:
    """Return result position -> (call position, index)."""
    found = pair(lines(*messages, **kwargs))
    calls = {p: (place.line.position, place.index) for p, place in found.calls.items()}
    assert calls == {line.position: key for key, line in found.results.items()}
    return calls


USER, DONE = Message.user("do it"), Message.assistant("done")


def result(call_id: str) -> Message:
    return Message.tool(call_id, f"result of {call_id}")


def test_parallel_results_in_another_order_pair_by_id() -> None:
    found = pairs_of(USER, assistant("x", "y"), result("y"), result("x"), DONE)
    assert found == {3: (2, 1), 4: (2, 0)}


def test_the_same_id_in_two_turns_is_two_calls() -> None:
    turn = (USER, assistant("x"), result("x"), DONE)
    assert pairs_of(*turn, *turn) == {3: (2, 0), 7: (6, 0)}


def test_the_same_id_twice_in_one_answer_pairs_in_order() -> None:
    found = pairs_of(USER, assistant("k", "k"), result("k"), result("k"))
    assert found == {3: (2, 0), 4: (2, 1)}


def test_a_result_does_not_reach_into_another_turn() -> None:
    assert pairs_of(USER, assistant("x"), USER, result("x")) == {}


def test_a_result_before_its_call_is_no_answer() -> None:
    assert pairs_of(USER, result("x"), assistant("x")) == {}


def test_a_replaced_reply_does_not_take_the_result_of_the_newer_one() -> None:
    newer = assistant("x", supersedes=(2,))
    assert pairs_of(USER, assistant("x"), newer, result("x")) == {4: (3, 0)}
    marked = {2: "superseded"}
    found = pairs_of(USER, assistant("x"), assistant("x"), result("x"), statuses=marked)
    assert found == {4: (3, 0)}


@given(
    st.lists(
        st.one_of(
            st.just(USER),
            st.lists(st.sampled_from("xyz"), max_size=3).map(lambda a: assistant(*a)),
            st.sampled_from("xyz").map(result),
        ),
        max_size=20,
    )
)
@settings(max_examples=100, deadline=None)
def test_every_pair_is_one_call_of_the_same_turn_and_id(messages) -> None:
    found = pairs_of(*messages)
    assert len(set(found.values())) == len(found)
    for answer, (call, index) in found.items():
        assert call < answer
        assert (
            messages[call - 1].tool_calls[index].id == messages[answer - 1].tool_call_id
        )
        assert USER not in messages[call:answer]


# --- pages ---


def positions(page) -> list[int]:
    return [line.position for line in page.lines]


@pytest.fixture
def rows(make):
    conversation = make([Message.user(f"m{n}") for n in range(1, 26)])
    return conversation.messages.all()


@pytest.mark.parametrize(
    ("cursor", "first", "last", "has_older", "has_newer"),
    [
        ({}, 16, 25, True, False),
        ({"before": 16}, 6, 15, True, True),
        ({"before": 6}, 1, 5, False, True),
        ({"after": 0}, 1, 10, False, True),
        ({"after": 10}, 11, 20, True, True),
        ({"after": 20}, 21, 25, True, False),
        ({"before": 26}, 16, 25, True, False),
        ({"before": 10**30}, 16, 25, True, False),
    ],
)
def test_pages_by_cursor(rows, cursor, first, last, has_older, has_newer) -> None:
    page = load_page(rows, 10, **cursor)
    assert positions(page) == list(range(first, last + 1))
    assert (page.has_older, page.has_newer) == (has_older, has_newer)


@pytest.mark.parametrize("cursor", [{"before": 1}, {"after": 25}])
def test_beyond_the_ends_there_is_nothing(rows, cursor) -> None:
    page = load_page(rows, 10, **cursor)
    assert positions(page) == []
    assert page.has_older != page.has_newer


def test_older_and_newer_lead_through_every_message_once(rows) -> None:
    seen: list[int] = []
    page = load_page(rows, 7)
    while True:
        seen = positions(page) + seen
        if not page.has_older:
            break
        page = load_page(rows, 7, before=page.first_position)
    assert seen == list(range(1, 26))
    page, seen = load_page(rows, 7, after=0), []
    while page.lines:
        seen += positions(page)
        page = load_page(rows, 7, after=page.last_position)
    assert seen == list(range(1, 26))


def test_gaps_between_positions_do_not_matter(make) -> None:
    conversation = make([Message.user("x") for _ in range(30)])
    conversation.messages.filter(position__in=range(5, 25)).delete()
    page = load_page(conversation.messages.all(), 10)
    assert positions(page) == [1, 2, 3, 4, 25, 26, 27, 28, 29, 30]


@pytest.fixture
def split(make):
    """Two parallel calls; pages of four put one result on the older page."""
    messages = [USER, DONE, USER, assistant("x", "y"), result("x"), result("y"), DONE]
    return make([*messages, USER]).messages.all()


def test_a_result_on_the_next_page_is_found(split) -> None:
    page = load_page(split, 5, after=0)
    assert page.pairs.results[4, 0].position == 5
    assert page.pairs.results[4, 1].position == 6
    assert not page.open_end


def test_a_call_on_the_page_before_is_found(split) -> None:
    page = load_page(split, 3)
    assert positions(page) == [6, 7, 8]
    place = page.pairs.calls[6]
    assert (place.line.position, place.index) == (4, 1)


def test_looking_beside_the_page_has_a_limit(make) -> None:
    many = [result(f"c{n}") for n in range(30)]
    messages = [USER, assistant("far", *(f"c{n}" for n in range(30))), *many]
    rows = make([*messages, result("far")]).messages.all()
    page = load_page(rows, 2, after=0)
    assert page.open_end
    assert (2, 0) not in page.pairs.results
    assert page.pairs.results[2, 4].position == 6
    assert load_page(rows, 2).open_start


def test_number_of_queries_does_not_grow(make, django_assert_num_queries) -> None:
    turn = [USER, assistant("x"), result("x"), DONE]
    rows = make(turn * 2500).messages.all()
    with django_assert_num_queries(1):  # after the newest page there is nothing
        assert positions(load_page(rows, 48)) == list(range(9953, 10_001))
    for cursor in ({"after": 0}, {"before": 5001}, {"after": 5000}):
        with django_assert_num_queries(2):
            assert len(load_page(rows, 48, **cursor).lines) == 48
    with django_assert_num_queries(4):  # begins with a result and ends with a call
        page = load_page(rows, 48, after=5002)
    assert page.pairs.calls[5003].line.position == 5002
    assert page.pairs.results[5050, 0].position == 5051
