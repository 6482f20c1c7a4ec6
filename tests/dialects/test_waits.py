from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from convmem.dialects.waits import MAX_WAIT, parse_wait, retry_after

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("6", 6.0),
        (" 1.5 ", 1.5),
        ("0", 0.0),
        ("-3", 0.0),
        ("99999999999", MAX_WAIT),
        ("6m0s", 360.0),
        ("76ms", 0.076),
        ("2m59.56s", 179.56),
        ("1h2m", 3720.0),
        ("Thu, 01 Jan 2026 00:00:30 GMT", 30.0),
        ("Wed, 31 Dec 2025 00:00:00 GMT", 0.0),
        ("Thu, 01 Jan 2026 00:00:30 -0000", 30.0),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("5 apples", None),
        ("", None),
    ],
)
def test_what_a_wait_text_means(text: str, seconds: float | None) -> None:
    assert parse_wait(text, NOW) == seconds


def test_milliseconds_win_over_seconds() -> None:
    headers = {"retry-after-ms": "250", "retry-after": "9"}
    assert retry_after(headers, NOW) == 0.25
    assert retry_after({"retry-after-ms": "x", "retry-after": "9"}, NOW) == 9.0


def test_an_exhausted_limit_says_when_it_is_reset() -> None:
    headers = {
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "2m59.56s",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "120ms",
    }
    assert retry_after(headers, NOW) == 179.56
    headers["x-ratelimit-remaining-requests"] = "3"
    assert retry_after(headers, NOW) == 0.12
    headers["x-ratelimit-remaining-tokens"] = "3"
    assert retry_after(headers, NOW) is None


@hypothesis_settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_a_wait_in_bounds_or_none(text: str) -> None:
    seconds = parse_wait(text, NOW)
    assert seconds is None or 0 <= seconds <= MAX_WAIT
