"""Streamed tool calls, with every known irregularity of their labels."""

from __future__ import annotations

from typing import Any

import pytest

from convmem.chat import ToolCallDelta
from convmem.dialects.openai import StreamDecoder
from convmem.dialects.profiles import CUSTOM
from convmem.testing.model_server import chunk, sse


def calls_of(
    *pieces: dict[str, Any] | list[dict[str, Any]],
) -> list[tuple[str, str, str]]:
    decoder = StreamDecoder(CUSTOM)
    deltas = []
    for piece in pieces:
        given = piece if isinstance(piece, list) else [piece]
        deltas += decoder.feed(sse(chunk({"tool_calls": given})))
    deltas += decoder.feed(sse(chunk({}, finish_reason="stop")) + sse("[DONE]"))
    completion = decoder.finish()
    assert completion.finish_reason == "tool_calls"
    check_deltas(deltas, completion.tool_calls)
    return [(call.id, call.name, call.arguments) for call in completion.tool_calls]


def check_deltas(deltas: list[Any], calls: Any) -> None:
    """Deltas are numbered 0, 1, 2...; each call's id comes once, in its first."""
    seen: dict[int, list[ToolCallDelta]] = {}
    for delta in deltas:
        assert isinstance(delta, ToolCallDelta)
        seen.setdefault(delta.index, []).append(delta)
    assert sorted(seen) == list(range(len(calls)))
    for index, call in enumerate(calls):
        first, *rest = seen[index]
        assert first.id == call.id
        assert all(delta.id is None for delta in rest)
        assert "".join(d.name or "" for d in seen[index]) == call.name
        assert "".join(d.arguments for d in seen[index]) == call.arguments


def piece(
    index: int | None = None,
    call_id: Any = None,
    name: str | None = None,
    arguments: Any = None,
) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    wire = {"index": index, "id": call_id, "type": "function", "function": function}
    return {key: value for key, value in wire.items() if value is not None}


def test_one_call_in_pieces() -> None:
    assert calls_of(
        piece(0, "a", "f", ""), piece(0, arguments='{"x"'), piece(0, arguments=":1}")
    ) == [("a", "f", '{"x":1}')]


def test_interleaved_calls_go_by_index() -> None:
    assert calls_of(
        piece(0, "a", "f", ""),
        piece(1, "b", "g", ""),
        piece(0, arguments="{}"),
        piece(1, arguments="[]"),
    ) == [("a", "f", "{}"), ("b", "g", "[]")]


def test_several_calls_in_one_delta() -> None:
    assert calls_of([piece(0, "a", "f", "{}"), piece(1, "b", "g", "{}")]) == [
        ("a", "f", "{}"),
        ("b", "g", "{}"),
    ]


def test_the_same_index_with_a_new_id_is_a_new_call() -> None:
    assert calls_of(
        piece(0, "a", "f", "{}"), piece(0, "b", "f", ""), piece(0, arguments="{}")
    ) == [("a", "f", "{}"), ("b", "f", "{}")]


def test_the_same_id_and_name_repeated_is_the_same_call() -> None:
    assert calls_of(piece(0, "0", "f", ""), piece(0, "0", "f", "{}")) == [
        ("0", "f", "{}")
    ]


def test_empty_id_and_name_later_are_as_good_as_none() -> None:
    assert calls_of(
        piece(0, "a", "f", ""), piece(0, "", "", "{"), piece(0, "", "", "}")
    ) == [("a", "f", "{}")]


def test_missing_index_goes_by_id_and_order() -> None:
    assert calls_of(
        piece(None, "a", "f", '{"x'),
        piece(None, None, None, '":1}'),
        piece(None, "b", "f", "{}"),
    ) == [("a", "f", '{"x":1}'), ("b", "f", "{}")]


def test_missing_index_with_repeated_ids() -> None:
    assert calls_of(
        piece(None, "a", "f", "{"),
        piece(None, "b", "g", "["),
        piece(None, "a", arguments="}"),
        piece(None, "b", arguments="]"),
    ) == [("a", "f", "{}"), ("b", "g", "[]")]


def test_neither_index_nor_id() -> None:
    found = calls_of(piece(name="f", arguments="{}"), piece(name="g", arguments="{}"))
    assert [call[1:] for call in found] == [("f", "{}"), ("g", "{}")]
    assert found[0][0] != found[1][0]
    found = calls_of([piece(name="f", arguments="{}"), piece(name="f", arguments="{}")])
    assert [call[1:] for call in found] == [("f", "{}"), ("f", "{}")]
    found = calls_of(piece(name="f", arguments='{"x'), piece(arguments='":1}'))
    assert [call[1:] for call in found] == [("f", '{"x":1}')]


def test_missing_ids_are_made_and_stable() -> None:
    pieces = (piece(0, None, "f", "{}"), piece(1, "", "g", "{}"))
    found = calls_of(*pieces)
    assert [call[0][:5] for call in found] == ["call_", "call_"]
    assert calls_of(*pieces) == found


def test_parallel_calls_without_ids_all_at_index_zero() -> None:
    found = calls_of(piece(0, "", "f", '{"a":1}'), piece(0, "", "f", '{"a":2}'))
    assert [call[1:] for call in found] == [("f", '{"a":1}'), ("f", '{"a":2}')]


def test_a_name_repeated_while_the_arguments_grow() -> None:
    found = calls_of(piece(0, "", "f", '{"a"'), piece(0, "", "f", ":1}"))
    assert [call[1:] for call in found] == [("f", '{"a":1}')]


def test_a_late_id_keeps_the_made_one() -> None:
    found = calls_of(piece(0, None, "f", "{"), piece(0, "late", None, "}"))
    assert len(found) == 1
    assert found[0][0].startswith("call_")
    assert found[0][1:] == ("f", "{}")


def test_a_late_name() -> None:
    assert calls_of(piece(0, "a"), piece(0, None, "f", "{}")) == [("a", "f", "{}")]


def test_the_first_index_may_be_one() -> None:
    assert calls_of(piece(1, "a", "f", "{"), piece(1, arguments="}")) == [
        ("a", "f", "{}")
    ]


def test_whole_arguments_in_one_piece_and_none_at_all() -> None:
    assert calls_of(piece(0, "a", "f", '{"x":1}')) == [("a", "f", '{"x":1}')]
    assert calls_of(piece(0, "a", "f")) == [("a", "f", "")]
    assert calls_of(piece(0, "a", "f", "")) == [("a", "f", "")]


def test_arguments_as_an_object() -> None:
    assert calls_of(piece(0, "a", "f", {"x": 1})) == [("a", "f", '{"x":1}')]


@pytest.mark.parametrize("call_id", [7, 0])
def test_a_number_as_id(call_id: int) -> None:
    assert calls_of(piece(0, call_id, "f", "{}")) == [(str(call_id), "f", "{}")]


def test_a_custom_tool_call() -> None:
    custom = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "n"}}
    more = {"index": 0, "type": "custom", "custom": {"input": "free text"}}
    assert calls_of(custom, more) == [("a", "n", "free text")]


def test_the_legacy_function_call() -> None:
    decoder = StreamDecoder(CUSTOM)
    for delta in ({"name": "f", "arguments": "{"}, {"arguments": "}"}):
        decoder.feed(sse(chunk({"function_call": delta})))
    decoder.feed(sse(chunk({}, finish_reason="function_call")) + sse("[DONE]"))
    completion = decoder.finish()
    assert completion.finish_reason == "tool_calls"
    (call,) = completion.tool_calls
    assert (call.kind, call.name, call.arguments) == ("function_call", "f", "{}")


def test_unknown_fields_of_a_call_are_kept() -> None:
    wire = {**piece(0, "a", "f", "{}"), "extra_content": {"google": {"s": "x"}}}
    decoder = StreamDecoder(CUSTOM)
    decoder.feed(sse(chunk({"tool_calls": [wire]})) + sse("[DONE]"))
    (call,) = decoder.finish().tool_calls
    assert call.extra == {"extra_content": {"google": {"s": "x"}}}
