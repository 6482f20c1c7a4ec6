"""The floor: what the driver itself costs on the same tables, with ready texts."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from typing import Any, Protocol

import psycopg

from benchmarks import settings

COLUMNS = "position, role, status, created_at, body"


class Floor(Protocol):
    def append(self, key: str, bodies: list[str]) -> None: ...
    def newest(self, key: str, limit: int) -> list[Any]: ...
    def everything(self, key: str) -> list[Any]: ...


class SqliteFloor:
    """sqlite3: BEGIN IMMEDIATE, UPDATE .. RETURNING, one two-row INSERT, COMMIT."""

    def __init__(self) -> None:
        self.db = sqlite3.connect(
            settings.SQLITE_FILE, isolation_level=None, timeout=60
        )
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute(f"PRAGMA synchronous={settings.SYNCHRONOUS}")

    def append(self, key: str, bodies: list[str]) -> None:
        now = datetime.now(UTC).isoformat(" ")
        run = self.db.execute
        run("BEGIN IMMEDIATE")
        pk, last = run(
            "UPDATE convmem_conversation SET last_position = last_position + 2,"
            " message_count = message_count + 2, last_message_at = ?"
            " WHERE key = ? RETURNING id, last_position",
            (now, key),
        ).fetchone()
        run(
            "INSERT INTO convmem_storedmessage (conversation_id, position, role,"
            " status, body, text, created_at, append_digest)"
            " VALUES (?,?,?,?,?,?,?,''), (?,?,?,?,?,?,?,'')",
            (pk, last - 1, "user", "complete", bodies[0], bodies[0], now)
            + (pk, last, "assistant", "complete", bodies[1], bodies[1], now),
        )
        run("COMMIT")

    def newest(self, key: str, limit: int) -> list[Any]:
        return self.db.execute(_select("?") + " DESC LIMIT ?", (key, limit)).fetchall()

    def everything(self, key: str) -> list[Any]:
        return self.db.execute(_select("?"), (key,)).fetchall()


class PostgresFloor:
    """psycopg: autocommit, prepared, an append is one statement."""

    def __init__(self) -> None:
        pg = settings.POSTGRES
        self.db = psycopg.connect(
            host=pg["HOST"],
            port=pg["PORT"],
            user=pg["USER"],
            password=pg["PASSWORD"],
            dbname=pg["NAME"],
            options=settings.PG_OPTIONS,
            autocommit=True,
            prepare_threshold=2,
        )

    def append(self, key: str, bodies: list[str]) -> None:
        now = datetime.now(UTC)
        self.db.execute(
            "WITH c AS (UPDATE convmem_conversation SET"
            " last_position = last_position + 2, message_count = message_count + 2,"
            " last_message_at = %s WHERE key = %s RETURNING id, last_position)"
            " INSERT INTO convmem_storedmessage (conversation_id, position, role,"
            " status, body, text, created_at, append_digest)"
            " SELECT c.id, c.last_position - 2 + v.n, v.role, 'complete', v.body,"
            " v.text, %s, '' FROM c, (VALUES (1, %s, %s, %s), (2, %s, %s, %s))"
            " AS v (n, role, body, text)",
            (now, key, now, "user", bodies[0], bodies[0])
            + ("assistant", bodies[1], bodies[1]),
        )

    def newest(self, key: str, limit: int) -> list[Any]:
        query = _select("%s") + " DESC LIMIT %s"
        return self.db.execute(query, (key, limit)).fetchall()

    def everything(self, key: str) -> list[Any]:
        return self.db.execute(_select("%s"), (key,)).fetchall()


def _select(mark: str) -> str:
    return (
        f"SELECT {COLUMNS} FROM convmem_storedmessage WHERE conversation_id ="
        f" (SELECT id FROM convmem_conversation WHERE key = {mark}) ORDER BY position"
    )
