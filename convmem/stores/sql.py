"""The SQL of the hot paths: two statements an append (one on PostgreSQL), one a read.

Positions are allocated by updating the conversation's row, whose lock is then held
until the rows are in: that keeps writers in order and batches whole.

Parameters have names where their number is fixed: Django turns those into SQLite's own
by one ``%``, others by a search through the text, which a short read would feel.
"""
# ruff: noqa: S608 - what is put into the texts are names of tables, columns, operators.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from convmem.exceptions import ConfigurationError
from convmem.models import Conversation, StoredMessage
from convmem.stores.rows import Batch

#: Rows and characters of one INSERT, far under what any database allows.
MAX_ROWS = 500
MAX_CHARACTERS = 1024 * 1024
COLUMNS = ("position", "role", "status", "body", "text", "created_at")
KEY_COLUMNS = ("append_key", "append_digest", "append_count")
NO_KEY = (None, None, None)
# Literals, so that SQLite and PostgreSQL see that their partial index holds.
SYSTEM = "role IN ('system', 'developer')"
OTHERS = "role NOT IN ('system', 'developer')"

CONCATENATED = "CONCAT_WS(' ', message_count, first_position, last_position)"

Values = tuple[Any, ...]


class Append(NamedTuple):
    """One append in the database's own values; each row lacks only its position."""

    key: str
    rows: list[Values]
    columns: tuple[str, ...]
    earliest: Any
    latest: Any
    supersedes: list[int]


class Statements:
    """The statements for SQLite; the other databases override what differs."""

    #: Whether an append outside a transaction needs none.
    one_statement_append = False
    greatest = "MAX"
    allocated = "last_position + %(count)s"
    returning = " RETURNING id, last_position"
    #: The conversation, from the reference that `allocate` gives.
    reference = "%s"
    if_absent = "ON CONFLICT (key) DO NOTHING"
    #: The counters as one text, so that they fit into the columns of a message's row.
    counters = "message_count || ' ' || first_position || ' ' || last_position"

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        quote = connection.ops.quote_name
        self.conversation = quote(Conversation._meta.db_table)
        self.message = quote(StoredMessage._meta.db_table)
        self.key = quote("key")
        self.has_key = f"{self.key} = %(key)s"
        self.found = f"(SELECT id FROM {self.conversation} WHERE {self.has_key})"
        self._writes()
        self._reads()

    def _writes(self) -> None:
        self.update = (
            f"UPDATE {self.conversation} SET last_position = {self.allocated},"
            " message_count = message_count + %(count)s,"
            f" last_message_at = {self.greatest}(last_message_at, %(latest)s)"
            f" WHERE {self.has_key}{self.returning}"
        )
        self.create = (
            f"INSERT INTO {self.conversation} ({self.key}, namespace, owner_name,"
            " owner_id, conversation_id, first_position, last_position, message_count,"
            " created_at, last_message_at)"
            " VALUES (%s, %s, %s, %s, %s, 1, 0, 0, %s, %s)"
            f" {self.if_absent}"
        )
        self.supersede = (
            f"UPDATE {self.message} SET status = 'superseded'"
            f" WHERE conversation_id = {self.reference} AND position IN "
        )
        self.empty = (
            f"UPDATE {self.conversation} SET message_count = 0,"
            f" first_position = last_position + 1 WHERE {self.has_key}"
        )
        self.delete = f"DELETE FROM {self.message} WHERE conversation_id = {self.found}"
        self.forget = f"DELETE FROM {self.conversation} WHERE {self.has_key}"

    def _reads(self) -> None:
        select = f"SELECT position, body FROM {self.message} WHERE conversation_id = "
        select += self.found
        newest = " ORDER BY position DESC LIMIT %(limit)s"
        self.all = f"{select} ORDER BY position"
        self.newest = select + newest
        self.newest_before = f"{select} AND position < %(before)s{newest}"
        # No ORDER BY: it would tempt planners away from the index of these.
        self.system = f"{select} AND {SYSTEM}"
        counters = "message_count, first_position, last_position"
        self.totals = f"SELECT {counters} FROM {self.conversation} WHERE {self.has_key}"
        # The counters come as a row without a position, so that all is one snapshot.
        rows = (
            f"SELECT position, body FROM {self.message}"
            " WHERE conversation_id = (SELECT id FROM c)"
        )
        self.window = (
            f"WITH c AS (SELECT id, {self.counters} AS counters"
            f" FROM {self.conversation} WHERE {self.has_key})"
            " SELECT NULL, counters FROM c"
            f" UNION ALL {rows} AND {SYSTEM}"
            f" UNION ALL SELECT * FROM ({rows} AND {OTHERS}{newest}) o"
        )
        self.appended = (
            f"SELECT position, append_digest, append_count FROM {self.message}"
            f" WHERE conversation_id = {self.found} AND append_key = %(append_key)s"
        )
        self.between = (
            f"{select} AND position BETWEEN %(first)s AND %(last)s ORDER BY position"
        )

    def append(self, cursor: Any, append: Append) -> int | None:
        """Allocate positions and insert the rows; return the last position, or None
        when there is no such conversation."""
        found = self.allocate(cursor, append)
        if found is None:
            return None
        reference, last = found
        self._insert(cursor, append, reference, last)
        self._supersede(cursor, append, reference)
        return last

    def allocate(self, cursor: Any, append: Append) -> tuple[Any, int] | None:
        """Return what finds the conversation, and the last position of the batch."""
        cursor.execute(self.update, _counters(append))
        found: tuple[Any, int] | None = cursor.fetchone()
        return found

    def _insert(self, cursor: Any, append: Append, reference: Any, last: int) -> None:
        first = last - len(append.rows) + 1
        for rows in _pieces(append.rows):
            values: list[Any] = []
            for position, row in enumerate(rows, first):
                values += (reference, position, *row)
            cursor.execute(self._insertion(append.columns, len(rows)), values)
            first += len(rows)

    @lru_cache(maxsize=256)  # noqa: B019 - one instance a process
    def _insertion(self, columns: tuple[str, ...], rows: int) -> str:
        marks = f"({self.reference}, {_marks(len(columns))[1:]}"
        return (
            f"INSERT INTO {self.message} (conversation_id, {', '.join(columns)})"
            f" VALUES {marks}{f', {marks}' * (rows - 1)}"
        )

    def _supersede(self, cursor: Any, append: Append, reference: Any) -> None:
        if append.supersedes:
            cursor.execute(
                self.supersede + _marks(len(append.supersedes)),
                [reference, *append.supersedes],
            )


class PostgreSQL(Statements):
    """A whole append is one statement, and so needs no transaction of its own."""

    one_statement_append = True
    greatest = "GREATEST"
    counters = CONCATENATED

    def append(self, cursor: Any, append: Append) -> int | None:
        if len(list(_pieces(append.rows))) > 1:
            return super().append(cursor, append)
        count = len(append.rows)
        values = [count, count, append.latest, append.key, *append.supersedes]
        for offset, row in enumerate(append.rows, 1 - count):
            values += (offset, *row)
        shape = (append.columns, count, len(append.supersedes))
        cursor.execute(self._whole(*shape), values)
        return max((position for (position,) in cursor.fetchall()), default=None)

    @lru_cache(maxsize=256)  # noqa: B019 - one instance a process
    def _whole(self, columns: tuple[str, ...], rows: int, superseded: int) -> str:
        # Without casts, each of which costs the server as much as a column does:
        # texts are texts to a VALUES list under either binding, and numbers and times
        # come with their type.
        values = f"{_marks(len(columns))}{f', {_marks(len(columns))}' * (rows - 1)}"
        supersede = ""
        if superseded:
            supersede = (
                f", s AS (UPDATE {self.message} m SET status = 'superseded' FROM c"
                " WHERE m.conversation_id = c.id AND m.position IN"
                f" {_marks(superseded)})"
            )
        update = self.update % {"count": "%s", "latest": "%s", "key": "%s"}
        return (
            f"WITH c AS ({update}){supersede} INSERT INTO {self.message}"
            f" (conversation_id, {', '.join(columns)})"
            f" SELECT c.id, c.last_position + v.position, v.{', v.'.join(columns[1:])}"
            f" FROM c, (VALUES {values}) AS v ({', '.join(columns)})"
            " RETURNING position"
        )


class MySQL(Statements):
    """MariaDB and MySQL: no UPDATE .. RETURNING, so the new position comes back as the
    connection's last insert id, and the conversation is found by its key again."""

    greatest = "GREATEST"
    allocated = "LAST_INSERT_ID(last_position + %(count)s)"
    returning = ""
    counters = CONCATENATED
    # Not INSERT IGNORE: its shared lock on the row that others made deadlocks them.
    if_absent = "ON DUPLICATE KEY UPDATE last_position = last_position"

    def _writes(self) -> None:
        self.reference = f"(SELECT id FROM {self.conversation} WHERE {self.key} = %s)"
        super()._writes()

    def allocate(self, cursor: Any, append: Append) -> tuple[Any, int] | None:
        cursor.execute(self.update, _counters(append))
        return (append.key, cursor.lastrowid) if cursor.rowcount else None


KINDS = {"sqlite": Statements, "postgresql": PostgreSQL, "mysql": MySQL}
_made: dict[str, Statements] = {}


def statements(connection: BaseDatabaseWrapper) -> Statements:
    """Return the statements for this connection's kind of database."""
    vendor = connection.vendor
    if vendor not in _made:
        if vendor not in KINDS:
            raise ConfigurationError(
                f"DatabaseStore does not know the database {vendor!r}; "
                f"it knows {', '.join(KINDS)}."
            )
        _made[vendor] = KINDS[vendor](connection)
    return _made[vendor]


def appending(connection: BaseDatabaseWrapper, key: str, batch: Batch) -> Append:
    """Return the batch in the values that this database takes."""
    times = {m.created_at for m in batch.messages if m.created_at is not None}
    made: dict[datetime | None, Any] = {t: column_time(connection, t) for t in times}
    rows: list[Values] = [
        (message.role, message.status, body, message.text, made[message.created_at])
        for message, body in zip(batch.messages, batch.bodies, strict=True)
    ]
    columns: tuple[str, ...] = COLUMNS
    if batch.key is not None:
        columns += KEY_COLUMNS
        rows[0] += (batch.key, batch.digest, len(rows))
        rows[1:] = [row + NO_KEY for row in rows[1:]]
    supersedes = [p for message in batch.messages for p in message.supersedes]
    return Append(key, rows, columns, made[min(times)], made[max(times)], supersedes)


def column_time(connection: BaseDatabaseWrapper, at: datetime) -> Any:
    """Return an aware time as Django's own fields would send it."""
    if not settings.USE_TZ:
        at = timezone.make_naive(at, timezone.get_default_timezone())
    return connection.ops.adapt_datetimefield_value(at)


def _pieces(rows: Sequence[Values]) -> Iterator[Sequence[Values]]:
    """Cut the rows into what one statement may carry."""
    start = size = 0
    for index, row in enumerate(rows):
        length = len(row[2]) + len(row[3])
        if index > start and (
            index - start == MAX_ROWS or size + length > MAX_CHARACTERS
        ):
            yield rows[start:index]
            start, size = index, 0
        size += length
    yield rows[start:]


def _counters(append: Append) -> dict[str, Any]:
    return {"count": len(append.rows), "latest": append.latest, "key": append.key}


def _marks(count: int) -> str:
    return f"(%s{', %s' * (count - 1)})"
