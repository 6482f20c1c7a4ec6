"""JSON made readable without changing what it says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

_escape = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
    r"|u([0-9a-fA-F]{4})|.)"
)


@dataclass(frozen=True)
class JsonText:
    """Text to show, and whether it is JSON at all."""

    text: str
    valid: bool = True


def pretty(text: str, indent: int = 2) -> JsonText:
    """Return ``text`` indented (on one line for 0), or as it is when it is no JSON.

    Numbers, repeated keys and the order of keys stay as written; ``\\uXXXX`` escapes
    of printable characters are shown as those characters.
    """
    try:
        formatted = msgspec.json.format(text, indent=indent)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return JsonText(text, valid=False)
    return JsonText(_escape.sub(_character, formatted))


def pretty_value(value: Any) -> str:
    """Return plain JSON types (of a decoded message) as indented JSON."""
    return pretty(msgspec.json.encode(value).decode()).text


def one_line(text: str, limit: int = 120) -> str:
    """Return the beginning of ``text`` on one line."""
    start = " ".join(text[: 4 * limit].split())
    cut = len(start) > limit or len(text) > 4 * limit
    return f"{start[:limit]}…" if cut else start


def _character(match: re.Match[str]) -> str:
    high, low, single = match.groups()
    if high:
        code = 0x10000 + ((int(high, 16) - 0xD800) << 10) + (int(low, 16) - 0xDC00)
    elif single:
        code = int(single, 16)
    else:
        return match[0]
    character = chr(code)
    return character if character.isprintable() and code > 0x7F else match[0]
