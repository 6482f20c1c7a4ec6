"""JSON as servers really send it: strict and fast first, tolerant second."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

_decode = msgspec.json.decode
_encode = msgspec.json.Encoder().encode


def loads(data: str | bytes) -> Any:
    """Return the value of a JSON text.

    Tolerated: a byte order mark, broken UTF-8 and lone surrogates (they become U+FFFD),
    NaN and Infinity (they become None). Raises `ValueError` for everything else.
    """
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeError):
        text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    try:
        value = json.loads(text.removeprefix("\ufeff"), parse_constant=lambda _: None)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    return _whole(value)


def dumps(value: Any) -> bytes:
    """Return compact UTF-8 JSON; lone surrogates become U+FFFD, NaN becomes null."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_whole(value))


def _whole(value: Any) -> Any:
    """Join surrogate pairs, replace lone halves, put None for a float without JSON."""
    if isinstance(value, str):
        if value.isascii():
            return value
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(item) for item in value]
    return value


def text_of(value: object) -> str:
    """Return ``value`` if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def dict_of(value: object) -> dict[str, Any]:
    """Return ``value`` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    """Return ``value`` if it is an array, else an empty one."""
    return value if isinstance(value, list) else []


def int_of(value: object) -> int | None:
    """Return ``value`` if it is a whole number, else None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else None
