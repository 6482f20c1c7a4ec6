"""The persistent store: conversations as rows of the project's database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC
from functools import lru_cache
from types import TracebackType
from typing import Any, ClassVar

from django.core import checks
from django.db import IntegrityError, OperationalError, connections, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from convmem.exceptions import StoreBusy
from convmem.messages import Message
from convmem.models import Conversation, StoredMessage
from convmem.models.owned import OwnedQuerySet
from convmem.owners import conversation_key
from convmem.stores import setup
from convmem.stores.base import ChatMemory, Loaded, Totals
from convmem.stores.rows import (
    Batch,
    Given,
    Row,
    check_limit,
    corrupt,
    key_conflict,
    prepare,
    read_all,
)
from convmem.stores.sql import Append, Statements, appending, statements
from convmem.validation import check_conversation_id

# A conversation's verbs come in groups, and hashing is a tenth of a short read.
_row_key = lru_cache(maxsize=1024)(conversation_key)


class DatabaseStore(ChatMemory):
    """Keeps conversations in the tables of `convmem.models`.

    ``using`` is a database alias; by default the router's database for writes, for
    reads too, so that a replica's lag is never seen. A write is one transaction, or a
    savepoint in an open one. A lock that outlasts the database's timeout raises
    `StoreBusy`.
    """

    supports_idempotency: ClassVar[bool] = True
    is_persistent: ClassVar[bool] = True

    def __init__(self, *, namespace: str = "default", using: str | None = None) -> None:
        super().__init__(namespace=namespace)
        self.using = using

    @property
    def database(self) -> str:
        """The alias of the database that this store reads and writes."""
        return self.using or router.db_for_write(Conversation)

    def check(self) -> list[checks.CheckMessage]:
        return setup.check_database(self.database)

    # --- verbs ---

    def get(self, conversation_id: str) -> list[Message]:
        return self._messages(conversation_id, "all")

    def add(
        self, conversation_id: str, messages: Given, *, key: str | None = None
    ) -> list[Message]:
        row_key = self._key(conversation_id)
        batch = prepare(messages, key)
        connection = connections[self.database]
        append = appending(connection, row_key, batch)
        try:
            with _locks_named:
                last = self._append(connection, conversation_id, append)
        except IntegrityError:
            stored = self._appended(row_key, batch) if batch.key else None
            if stored is None:
                raise
            return stored
        return batch.numbered(last)

    def clear(self, conversation_id: str) -> int:
        return self._delete(conversation_id, forget=False)

    def erase(self, conversation_id: str) -> int:
        return self._delete(conversation_id, forget=True)

    # --- reads that policies make ---

    def totals(self, conversation_id: str) -> Totals:
        rows = self._fetch("totals", key=self._key(conversation_id))
        return _totals(*rows[0]) if rows else Totals()

    def newest(
        self, conversation_id: str, limit: int, *, before: int | None = None
    ) -> list[Message]:
        check_limit(limit)
        if before is None:
            messages = self._messages(conversation_id, "newest", limit=limit)
        else:
            messages = self._messages(
                conversation_id, "newest_before", before=before, limit=limit
            )
        messages.reverse()
        return messages

    def system_messages(self, conversation_id: str) -> list[Message]:
        key = self._key(conversation_id)
        return self._read(key, sorted(self._fetch("system", key=key)))

    def window(self, conversation_id: str, limit: int) -> Loaded:
        key = self._key(conversation_id)
        found = list(self._fetch("window", key=key, limit=check_limit(limit)))
        if not found:
            return Loaded(messages=(), totals=Totals())
        # No promise says that the row of the counters comes first.
        counters = next(row for row in found if row[0] is None)
        found.remove(counters)
        found.sort()
        messages = tuple(self._read(key, found))
        return Loaded(messages=messages, totals=_totals(*map(int, counters[1].split())))

    # --- rows, for lists and pages ---

    def conversations(self) -> OwnedQuerySet[Conversation]:
        """Return the rows of this owner's conversations in this store."""
        return Conversation.objects.using(self.database).exactly(
            namespace=self.namespace,
            owner_name=self.owner.name,
            owner_id=self.owner.id,
        )

    def rows(self, conversation: Conversation) -> Any:
        """Return a queryset of the conversation's rows (`StoredMessage`)."""
        return StoredMessage.objects.using(self.database).filter(
            conversation=conversation
        )

    def messages_of(self, rows: Iterable[StoredMessage]) -> list[Message]:
        """Return the messages of ``rows``, in their order."""
        by_position = {row.position: row for row in rows}
        messages = read_all([(p, row.body) for p, row in by_position.items()])
        return [_known(m, by_position) for m in messages]

    # --- how ---

    def _key(self, conversation_id: str) -> str:
        check_conversation_id(conversation_id)
        return _row_key(self.namespace, self.owner, conversation_id)

    def _fetch(self, statement: str, **values: Any) -> Sequence[Any]:
        connection = connections[self.database]
        sql: str = getattr(statements(connection), statement)
        with _locks_named, connection.cursor() as cursor:
            cursor.execute(sql, values)
            rows: Sequence[Any] = cursor.fetchall()  # PyMySQL: a tuple
        return rows

    def _messages(
        self, conversation_id: str, statement: str, **values: Any
    ) -> list[Message]:
        key = self._key(conversation_id)
        return self._read(key, self._fetch(statement, key=key, **values))

    def _read(self, key: str, rows: Sequence[Row]) -> list[Message]:
        messages = read_all(rows)
        bad = [m.position or 0 for m in messages if m.status == "corrupt"]
        if not bad:
            return messages
        found = StoredMessage.objects.using(self.database).filter(
            conversation__key=key, position__in=bad
        )
        by_position = {row.position: row for row in found}
        return [_known(m, by_position) for m in messages]

    def _append(
        self,
        connection: BaseDatabaseWrapper,
        conversation_id: str,
        append: Append,
    ) -> int:
        sql = statements(connection)
        last = None
        if sql.one_statement_append and _outside_transaction(connection):
            with connection.cursor() as cursor:
                last = sql.append(cursor, append)
        if last is not None:
            return last
        with _transaction(connection) as cursor:
            last = sql.append(cursor, append)
            if last is None:
                self._create(sql, cursor, conversation_id, append)
                last = sql.append(cursor, append)
        if last is None:
            raise StoreBusy(
                f"Conversation {conversation_id!r} was deleted while messages were "
                "added to it; try again."
            )
        return last

    def _create(
        self,
        sql: Statements,
        cursor: Any,
        conversation_id: str,
        append: Append,
    ) -> None:
        """Make the conversation's row, unless another writer just did."""
        owner = self.owner
        readable = (self.namespace, owner.name, owner.id, conversation_id)
        values = (append.key, *readable, append.earliest, append.latest)
        cursor.execute(sql.create, values)

    def _appended(self, key: str, batch: Batch) -> list[Message] | None:
        """Return the batch stored under this idempotency key, None when there is none.

        Raises `IdempotencyConflict` when it is another batch.
        """
        found = self._fetch("appended", key=key, append_key=batch.key)
        if not found:
            return None
        first, digest, count = found[0]
        if digest != batch.digest:
            raise key_conflict(first)
        last = first + count - 1
        rows = self._fetch("between", key=key, first=first, last=last)
        return self._read(key, rows)

    def _delete(self, conversation_id: str, *, forget: bool) -> int:
        key = self._key(conversation_id)
        connection = connections[self.database]
        sql = statements(connection)
        with (
            _locks_named,
            transaction.atomic(using=connection.alias),
            connection.cursor() as cursor,
        ):
            # The conversation first: it is the lock that appends wait for.
            cursor.execute(sql.empty, {"key": key})
            cursor.execute(sql.delete, {"key": key})
            count = int(cursor.rowcount)
            if forget:
                cursor.execute(sql.forget, {"key": key})
        return count


def _totals(count: int, first: int, last: int) -> Totals:
    if not count:
        return Totals()
    return Totals(count=count, first_position=first, last_position=last)


def _known(message: Message, rows: dict[int, StoredMessage]) -> Message:
    """Give a corrupt message what its row's columns still tell."""
    row = rows.get(message.position or 0)
    if message.status != "corrupt" or row is None:
        return message
    at = row.created_at
    if timezone.is_naive(at):
        at = timezone.make_aware(at, timezone.get_default_timezone())
    return corrupt(row.position, role=row.role, created_at=at.astimezone(UTC))


@contextmanager
def _transaction(connection: BaseDatabaseWrapper) -> Iterator[Any]:
    """A transaction (a savepoint in an open one) and its cursor.

    On SQLite an append of its own is begun and committed in plain statements: nothing
    nests in it, so that what `atomic` keeps account of, a fifth of the time, is spared.
    """
    if connection.vendor != "sqlite" or not _outside_transaction(connection):
        with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
            yield cursor
        return
    mode = getattr(connection, "transaction_mode", None) or ""
    with connection.cursor() as cursor, connection.wrap_database_errors:
        raw = connection.connection
        raw.execute(f"BEGIN {mode}")
        try:
            yield cursor
            raw.commit()
        except BaseException:
            raw.rollback()
            raise


def _outside_transaction(connection: BaseDatabaseWrapper) -> bool:
    return not connection.in_atomic_block and connection.get_autocommit()


#: PostgreSQL: serialization failure, deadlock, lock not available.
BUSY_STATES = frozenset({"40001", "40P01", "55P03"})
#: SQLite: BUSY and LOCKED, without their extended bits.
BUSY_SQLITE = frozenset({5, 6})
#: MariaDB and MySQL: record changed, lock wait timeout, deadlock, NOWAIT.
BUSY_MYSQL = frozenset({1020, 1205, 1213, 3572})


def is_lock_error(error: OperationalError) -> bool:
    """Say whether the error is about a lock that was not to be had."""
    cause = error.__cause__
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in BUSY_SQLITE
    if getattr(cause, "sqlstate", None) in BUSY_STATES:
        return True
    return bool(error.args) and error.args[0] in BUSY_MYSQL


class _LocksNamed:
    """Turns the databases' lock errors into `StoreBusy`."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, OperationalError) and is_lock_error(error):
            raise StoreBusy(
                "The database kept a lock for longer than its timeout; try again."
            ) from error


_locks_named = _LocksNamed()
