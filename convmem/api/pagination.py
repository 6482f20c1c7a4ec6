"""Cursor pages that stay constant in cost and survive a cursor that was tampered with."""

from __future__ import annotations

from datetime import UTC
from typing import Any, ClassVar

from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request


class CheckedCursorPagination(CursorPagination):
    """DRF's cursor pages, 50 a page unless ``page_size`` asks for 1 to 200.

    DRF hands a cursor's position to the database as it came. Here it must be a value
    of ``position_field``; anything else is an invalid cursor (404), as DRF has it.
    """

    page_size = 50
    max_page_size = 200
    page_size_query_param = "page_size"
    position_field: ClassVar[models.Field[Any, Any]]

    def decode_cursor(self, request: Request) -> Any:
        cursor = super().decode_cursor(request)
        if cursor is not None and cursor.position is not None:
            self._check_position(cursor.position)
        return cursor

    def _check_position(self, position: str) -> None:
        try:
            value = self.position_field.to_python(position)
            if isinstance(self.position_field, models.DateTimeField):
                if timezone.is_naive(value):
                    raise ValueError(position)
                value.astimezone(UTC)
        except (ValidationError, ValueError, OverflowError) as error:
            raise NotFound(self.invalid_cursor_message) from error


class NewestActivityFirst(CheckedCursorPagination):
    """Conversations, the most recently active first."""

    ordering = ("-last_message_at", "-id")
    position_field = models.DateTimeField()


class NewestMessageFirst(CheckedCursorPagination):
    """Messages of one conversation, by position from the newest."""

    ordering = ("-position",)
    position_field = models.BigIntegerField()
