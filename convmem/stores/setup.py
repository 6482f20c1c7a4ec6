"""What can be wrong with the set-up of a store; ids E010-E019 and W010-W019.

Settings are looked at, no connection is opened: checks run before anything else works.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.cache.backends.db import DatabaseCache
from django.core.cache.backends.dummy import DummyCache
from django.core.cache.backends.filebased import FileBasedCache
from django.core.cache.backends.locmem import LocMemCache
from django.db import connections
from django.utils.module_loading import import_string

from convmem.stores.sql import KINDS

#: Their ``incr`` reads and writes without a lock, or keeps nothing.
FORGETFUL = (FileBasedCache, DatabaseCache, DummyCache)
#: Seconds that a writer should be ready to wait for other writers on SQLite.
MIN_BUSY_TIMEOUT = 5
_WAL = re.compile(r"journal_mode\s*[=(]\s*['\"]?wal\b", re.IGNORECASE)


def check_database(alias: str) -> list[checks.CheckMessage]:
    """Return what is wrong with ``DATABASES[alias]`` for a `DatabaseStore`."""
    if alias not in connections:
        return [
            _error(
                "E010",
                f"DatabaseStore: DATABASES has no alias {alias!r}.",
                f"Set USING to one of: {', '.join(connections)}.",
            )
        ]
    connection = connections[alias]
    if connection.vendor not in KINDS:
        return [
            _error(
                "E011",
                f"DatabaseStore does not know the database {connection.vendor!r} "
                f"of DATABASES[{alias!r}].",
                f"Set USING to one of these kinds: {', '.join(KINDS)}.",
            )
        ]
    if connection.vendor == "sqlite":
        return _check_sqlite(alias, connection.settings_dict)
    return []


def check_cache(alias: str) -> list[checks.CheckMessage]:
    """Return what is wrong with ``CACHES[alias]`` for a `CacheStore`."""
    if alias not in settings.CACHES:
        known = ", ".join(settings.CACHES)
        return [
            _error(
                "E012",
                f"CacheStore: CACHES has no alias {alias!r}.",
                f"Add it, or set CACHE to one of: {known}.",
            )
        ]
    backend = import_string(settings.CACHES[alias]["BACKEND"])
    if issubclass(backend, FORGETFUL):
        return [
            _error(
                "E013",
                f"CacheStore: CACHES[{alias!r}] is a {backend.__name__}, whose incr() "
                "loses counts when two processes add at once.",
                "Use Redis or Memcached, or convmem.stores.DatabaseStore.",
            )
        ]
    if issubclass(backend, LocMemCache):
        return [
            _warning(
                "W013",
                f"CacheStore: CACHES[{alias!r}] is a {backend.__name__}: each process "
                "has its own conversations and drops some at MAX_ENTRIES.",
                "Use Redis or Memcached; for tests, convmem.stores.LocalStore.",
            )
        ]
    return []


def _check_sqlite(alias: str, database: dict[str, Any]) -> list[checks.CheckMessage]:
    options = database.get("OPTIONS", {})
    place = f"DATABASES[{alias!r}]"
    found = []
    if not _is_wal(str(database["NAME"]), str(options.get("init_command", ""))):
        found.append(
            _warning(
                "W010",
                f"{place} is SQLite without write-ahead logging: readers and writers "
                "wait for each other.",
                "Set OPTIONS['init_command'] = "
                "'PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;'.",
            )
        )
    mode = str(options.get("transaction_mode") or "DEFERRED").upper()
    if mode not in {"IMMEDIATE", "EXCLUSIVE"}:
        found.append(
            _warning(
                "W011",
                f"{place} begins {mode.lower()} transactions: two writers that read "
                "first fail with 'database is locked', whatever the timeout.",
                "Set OPTIONS['transaction_mode'] = 'IMMEDIATE'.",
            )
        )
    if options.get("timeout", MIN_BUSY_TIMEOUT) < MIN_BUSY_TIMEOUT:
        found.append(
            _warning(
                "W012",
                f"{place} waits only {options['timeout']} s for another writer.",
                f"Set OPTIONS['timeout'] to {MIN_BUSY_TIMEOUT} or more.",
            )
        )
    return found


def _is_wal(name: str, init_command: str) -> bool:
    """Say whether the database logs ahead. The mode is a property of the file, so one
    that was set by hand counts: bytes 18 and 19 of the file are 2 then."""
    if _WAL.search(init_command) or ":memory:" in name or "mode=memory" in name:
        return True
    try:
        with Path(name).open("rb") as file:
            return file.read(20)[18:] == b"\x02\x02"
    except OSError:
        return False


def _error(number: str, message: str, hint: str) -> checks.CheckMessage:
    return checks.Error(message, hint=hint, id=f"convmem.{number}")


def _warning(number: str, message: str, hint: str) -> checks.CheckMessage:
    return checks.Warning(message, hint=hint, id=f"convmem.{number}")
