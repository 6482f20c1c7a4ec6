from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from convmem.dialects.sse import SseDecoder, SseEvent
from convmem.exceptions import ProviderBadResponse


def events(*pieces: bytes) -> list[SseEvent]:
    decoder = SseDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)]


def test_events_end_at_a_blank_line() -> None:
    assert events(b"data: a\n\ndata:b\n\n") == [("", "a"), ("", "b")]


def test_names_and_several_data_lines() -> None:
    data = b"event: note\ndata: one\ndata\ndata:  two\nid: 7\nretry: 3\nodd: x\n\n"
    assert events(data) == [("note", "one\n\n two")]


def test_a_name_does_not_outlive_its_event() -> None:
    assert events(b"event: a\ndata: 1\n\ndata: 2\n\n") == [("a", "1"), ("", "2")]
    assert events(b"event: a\n\ndata: 2\n\n") == [("", "2")]


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"], ids=["LF", "CR", "CRLF"])
def test_line_ends_split_at_every_byte(end: str) -> None:
    lines = [": hi", "event: e", "data: é😀", "data: b", "", "data: c", "", ""]
    data = end.join(lines).encode()
    expected = [("e", "é😀\nb"), ("", "c")]
    for at in range(len(data) + 1):
        assert events(data[:at], data[at:]) == expected
    assert events(*(data[i : i + 1] for i in range(len(data)))) == expected


def test_an_event_is_given_at_its_cr_without_waiting_for_a_line_feed() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\r\n\r") == [("", "a")]
    assert decoder.feed(b"\ndata: b\r\n\r\n") == [("", "b")]


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c"])
def test_other_separators_are_text(mark: str) -> None:
    data = f'data: {{"a": "x{mark}y"}}\n\n'.encode()
    assert events(data) == [("", f'{{"a": "x{mark}y"}}')]


def test_comments_are_no_events() -> None:
    assert events(b": ping\n\n:\n\n: x\ndata: a\n: y\n\n") == [("", "a")]


def test_a_last_event_without_its_blank_line_is_only_pending() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\n\ndata: b\nda") == [("", "a")]
    assert decoder.pending == "b"
    assert decoder.feed(b"ta: c") == []
    assert decoder.pending == "b\nc"


def test_byte_order_mark_and_leading_space() -> None:
    assert events(b"\xef\xbb", b"\xbfdata: a\n\n") == [("", "a")]
    assert events(b"\xef\xbb\xbf", b"data: a\n\n") == [("", "a")]
    assert events(b" ", b"\n  data: a\n\n") == [("", "a")]


@pytest.mark.parametrize("body", [b'{"error": 1}', b"[1]", b"<html>\n\nx</html>"])
def test_a_body_that_is_no_stream(body: bytes) -> None:
    for at in range(len(body)):
        decoder = SseDecoder()
        assert decoder.feed(b"\n " + body[:at]) == []
        assert decoder.feed(body[at:]) == []
        assert decoder.foreign
        assert decoder.body == body
        assert decoder.pending is None


def test_broken_utf8_is_replaced() -> None:
    assert events(b"data: \xff\n\n") == [("", "\ufffd")]


def test_one_event_has_a_largest_size() -> None:
    decoder = SseDecoder(max_event_bytes=100)
    for _ in range(50):
        decoder.feed(b"data: 12345\n\n")
    with pytest.raises(ProviderBadResponse, match="larger than 100 bytes"):
        for _ in range(50):
            decoder.feed(b"data: 12345\n")


@hypothesis_settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=6))
def test_any_bytes_in_any_pieces(data: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(data)]
    pieces = [data[a:b] for a, b in zip(places, places[1:], strict=False)]
    assert events(*pieces) == events(data)
