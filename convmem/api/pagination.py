"""Cursor pages: constant in cost, exact among equal times, safe against bad cursors."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlencode

from django.core.exceptions import ValidationError
from django.db.models import Model, Q
from django.utils import timezone
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.utils.urls import replace_query_param


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page begins: after the row with these key values, or, ``reverse``,
    before it."""

    values: tuple[Any, ...]
    reverse: bool = False


class KeysetPagination(CursorPagination):
    """Pages of 50 (``page_size`` asks for 1 to 200), the highest key first.

    The shape of DRF's cursor pages, with the whole of a unique key in the cursor: DRF's
    own counts rows within equal times, and loses its way in a page of them. A cursor
    that holds anything but values of the key's columns is answered with 404, as in DRF.
    """

    page_size = 50
    max_page_size = 200
    page_size_query_param = "page_size"
    #: Columns of a unique key, the first one indexed.
    key: ClassVar[tuple[str, ...]]

    def paginate_queryset(
        self, queryset: Any, request: Request, view: Any = None
    ) -> list[Any]:
        self.request = request
        self.base_url = request.build_absolute_uri()
        size = self.get_page_size(request) or self.max_page_size
        place = self._place(request, queryset.model)
        reverse = place is not None and place.reverse
        if place is not None:
            queryset = queryset.filter(_beyond(self.key, place))
        sign = "" if reverse else "-"
        rows = list(queryset.order_by(*(sign + name for name in self.key))[: size + 1])
        more, page = len(rows) > size, rows[:size]
        if reverse:
            page.reverse()
        self.rows = page
        self.has_next = bool(page) and (reverse or more)
        self.has_previous = bool(page) and (more if reverse else place is not None)
        self.display_page_controls = self.has_next or self.has_previous
        return page

    def get_next_link(self) -> str | None:
        return self._link(self.rows[-1]) if self.has_next else None

    def get_previous_link(self) -> str | None:
        return self._link(self.rows[0], reverse=True) if self.has_previous else None

    def _link(self, row: Any, *, reverse: bool = False) -> str:
        tokens = [("p", _written(getattr(row, name))) for name in self.key]
        if reverse:
            tokens.append(("r", "1"))
        cursor = base64.urlsafe_b64encode(urlencode(tokens).encode()).decode()
        link: str = replace_query_param(
            self.base_url or "", self.cursor_query_param, cursor
        )
        return link

    def _place(self, request: Request, model: type[Model]) -> Place | None:
        written = request.query_params.get(self.cursor_query_param)
        if written is None:
            return None
        try:
            tokens = parse_qs(base64.urlsafe_b64decode(written).decode())
            texts = tokens["p"]
            values = tuple(
                _read(model._meta.get_field(name), text)
                for name, text in zip(self.key, texts, strict=True)
            )
        except (KeyError, ValueError, OverflowError, ValidationError) as error:
            raise NotFound(self.invalid_cursor_message) from error
        return Place(values, reverse="r" in tokens)


def _beyond(key: tuple[str, ...], place: Place) -> Q:
    """Return the condition for rows on the far side of ``place``."""
    step = "gt" if place.reverse else "lt"
    condition = Q()
    for name, value in reversed(tuple(zip(key, place.values, strict=True))):
        past = Q((f"{name}__{step}", value))
        if condition:
            # Written so that an index on the first column gives the range.
            condition = Q((f"{name}__{step}e", value)) & (past | condition)
        else:
            condition = past
    return condition


def _written(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _read(field: Any, text: str) -> Any:
    value = field.to_python(text)
    if isinstance(value, datetime):
        if timezone.is_naive(value):
            raise ValueError(text)
        value = value.astimezone(UTC)
    return value


class NewestActivityFirst(KeysetPagination):
    """Conversations, the most recently active first."""

    key = ("last_message_at", "id")


class NewestMessageFirst(KeysetPagination):
    """Messages of one conversation, by position from the newest."""

    key = ("position",)
