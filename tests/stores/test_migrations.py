"""Migrations of data: what was stored before means the same after."""

from __future__ import annotations

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from convmem.messages import Message
from convmem.stores import DatabaseStore
from convmem.stores.base import Totals

TURN = [Message.user("a"), Message.assistant("b")]


def migrate_to(name: str) -> None:
    executor = MigrationExecutor(connection)
    executor.migrate([("convmem", name)])


@pytest.mark.django_db(transaction=True)
def test_cleared_conversations_keep_where_they_begin() -> None:
    store = DatabaseStore()
    for name in ("whole", "cleared", "again"):
        store.add(name, TURN)
    store.clear("cleared")
    store.clear("again")
    store.add("again", TURN)
    try:
        migrate_to("0002_run")
    finally:
        migrate_to("0003_conversation_first_position")
    assert store.totals("whole") == Totals(count=2, first_position=1, last_position=2)
    assert store.totals("again") == Totals(count=2, first_position=3, last_position=4)
    store.add("cleared", TURN)
    assert store.totals("cleared") == Totals(count=2, first_position=3, last_position=4)
