"""What can be wrong with the set-up of a store; ids E010-E019 and W010-W019."""

from __future__ import annotations

from django.core import checks


def check_database(alias: str) -> list[checks.CheckMessage]:
    return []
