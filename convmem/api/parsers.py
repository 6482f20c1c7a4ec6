"""The request body: strict JSON of bounded depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

from django.http import UnreadablePostError
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

MAX_DEPTH = 64


class StrictJSONParser(JSONParser):
    """DRF's parser without its ways to a server error.

    NaN and the infinities are no JSON whatever ``STRICT_JSON`` says; values nested
    deeper than ``MAX_DEPTH`` are refused with the other bodies that cannot be parsed.
    The length of a body is bounded by Django's ``DATA_UPLOAD_MAX_MEMORY_SIZE``.
    """

    strict = True

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        try:
            data = super().parse(stream, media_type, parser_context)
        except RecursionError:
            raise _too_deep() from None
        except UnreadablePostError:
            raise ParseError("The request body ended too soon.") from None
        _check_depth(data)
        return data


def _check_depth(data: Any) -> None:
    level = [data]
    for _ in range(MAX_DEPTH):
        level = [below for value in level for below in _children(value)]
        if not level:
            return
    raise _too_deep()


def _children(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _too_deep() -> ParseError:
    return ParseError(
        f"The JSON is nested more than {MAX_DEPTH} levels deep.", code="json_too_deep"
    )
