"""How long a provider asks to wait, in all the ways in which providers say it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MAX_WAIT = 24 * 60 * 60.0
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|h|m|s)")
_SECONDS = {
    "h": 3600.0,
    "m": 60.0,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "µs": 1e-6,
    "ns": 1e-9,
}


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the wait in seconds that an answer's headers ask for, None if they do not.

    ``headers`` have lower-case names; ``now`` is an aware time, for HTTP dates. Looked
    at in order: ``retry-after-ms``, ``retry-after`` (seconds, HTTP date or a duration
    such as ``6m0s``), and the ``x-ratelimit-reset-*`` of an exhausted limit. The result
    is clamped to 0 .. `MAX_WAIT`.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return _clamp(milliseconds / 1000)
    seconds = parse_wait(headers.get("retry-after", ""), now)
    return seconds if seconds is not None else _rate_limit_reset(headers, now)


def parse_wait(text: str, now: datetime) -> float | None:
    """Return the seconds that ``text`` means: a number, a duration or an HTTP date."""
    text = text.strip()
    seconds = _number(text)
    if seconds is None:
        seconds = _duration(text)
    if seconds is None:
        seconds = _until(text, now)
    return None if seconds is None else _clamp(seconds)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _duration(text: str) -> float | None:
    pieces = _DURATION.findall(text)
    if not pieces or "".join(map("".join, pieces)) != text:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in pieces)


def _until(text: str, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, IndexError, TypeError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - now).total_seconds()


def _rate_limit_reset(headers: Mapping[str, str], now: datetime) -> float | None:
    waits = []
    for kind in ("requests", "tokens"):
        if headers.get(f"x-ratelimit-remaining-{kind}", "").strip() == "0":
            reset = headers.get(f"x-ratelimit-reset-{kind}", "")
            waits.append(parse_wait(reset, now))
    return max((wait for wait in waits if wait is not None), default=None)


def _clamp(seconds: float) -> float:
    return min(max(seconds, 0.0), MAX_WAIT)
