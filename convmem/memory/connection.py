"""The database connection around a model call: none is held while a model thinks."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from django.db import connections

from convmem.conf import settings
from convmem.exceptions import RunInTransaction
from convmem.kernel.flow import Flow, io
from convmem.memory.provider import MemoryProvider
from convmem.stores.database import DatabaseStore


def refuse_transaction(provider: MemoryProvider) -> Flow[None]:
    """Raise `RunInTransaction` when the provider's database has an open ``atomic()``.

    An error of the model would roll the user's message back, and the locks would be
    held for as long as the model takes. ``CONVMEM["ALLOW_RUN_IN_TRANSACTION"]`` allows
    it. A provider without a `DatabaseStore` is not looked at.
    """
    store = _database_store(provider)
    if store is not None:
        yield from io(_refuse, _arefuse, store.database)


def release_connection(provider: MemoryProvider) -> Flow[None]:
    """Give the thread's connections back before a wait, by Django's own rule: with
    ``CONN_MAX_AGE`` 0 they close."""
    if _database_store(provider) is not None:
        yield from io(close_idle_connections, _aclose_idle_connections)


def close_idle_connections() -> None:
    """Do what `django.db.close_old_connections` does, and leave those alone that are
    in an open transaction: it would close them too."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def _refuse(database: str) -> None:
    if settings.allow_run_in_transaction or not connections[database].in_atomic_block:
        return
    raise RunInTransaction(
        f"A model would be called inside an open transaction of database {database!r}. "
        "Call it outside of atomic() (views: transaction.non_atomic_requests), or set "
        'CONVMEM["ALLOW_RUN_IN_TRANSACTION"] in tests.'
    )


_arefuse = sync_to_async(_refuse)
_aclose_idle_connections = sync_to_async(close_idle_connections)


def _database_store(provider: MemoryProvider) -> DatabaseStore | None:
    store = getattr(provider, "store", None)
    return store if isinstance(store, DatabaseStore) else None
