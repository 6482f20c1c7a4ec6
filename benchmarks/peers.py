"""Peers by their public API: the OpenAI Agents SDK's sessions, LangChain's history."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from agents import SQLiteSession
from agents.extensions.memory import SQLAlchemySession
from langchain_community.chat_message_histories import SQLChatMessageHistory
from langchain_core.messages import AIMessage, HumanMessage
from sqlalchemy import create_engine, event

from benchmarks import settings

Pair = list[dict[str, str]]


class AgentsSqlite:
    """``SQLiteSession`` in one long-lived loop: the loop's cost is not the peer's."""

    name = "Agents SDK SQLiteSession"

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.path = settings.FOLDER / "convmem-bench-agents.sqlite3"
        self.path.unlink(missing_ok=True)
        self.sessions: dict[str, SQLiteSession] = {}

    def _session(self, key: str) -> Any:
        if key not in self.sessions:
            self.sessions[key] = SQLiteSession(key, self.path)
        return self.sessions[key]

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def add(self, key: str, pair: Pair) -> None:
        self._run(self._session(key).add_items(pair))

    def newest(self, key: str, limit: int) -> Any:
        return self._run(self._session(key).get_items(limit))

    def everything(self, key: str) -> Any:
        return self._run(self._session(key).get_items())


class AgentsSqlAlchemy(AgentsSqlite):
    """``SQLAlchemySession`` over aiosqlite or asyncpg."""

    def __init__(self, loop: asyncio.AbstractEventLoop, kind: str) -> None:
        self.loop = loop
        self.name = f"Agents SDK SQLAlchemySession ({kind})"
        self.sessions = {}
        self.arguments: dict[str, Any] = {"create_tables": True}
        if kind == "sqlite":
            path = settings.FOLDER / "convmem-bench-alchemy.sqlite3"
            path.unlink(missing_ok=True)
            self.arguments["url"] = f"sqlite+aiosqlite:///{path}"
        else:
            self.arguments["url"] = _postgres_url("postgresql+asyncpg")
            self.arguments["engine_kwargs"] = {
                "connect_args": {
                    "server_settings": {
                        "synchronous_commit": "on" if settings.DURABLE else "off"
                    }
                }
            }
        self.first: Any = None

    def _session(self, key: str) -> Any:
        if self.first is None:
            self.first = SQLAlchemySession.from_url(key, **self.arguments)
            self.sessions[key] = self.first
        if key not in self.sessions:
            self.sessions[key] = SQLAlchemySession(
                key, engine=self.first.engine, create_tables=True
            )
        return self.sessions[key]


class LangChainSql:
    """``SQLChatMessageHistory`` on one tuned engine."""

    def __init__(self, kind: str) -> None:
        self.name = f"LangChain SQLChatMessageHistory ({kind})"
        if kind == "sqlite":
            path = settings.FOLDER / "convmem-bench-langchain.sqlite3"
            path.unlink(missing_ok=True)
            self.engine = create_engine(f"sqlite:///{path}")
            event.listen(self.engine, "connect", _tune)
        else:
            self.engine = create_engine(
                _postgres_url("postgresql+psycopg"),
                connect_args={"options": settings.PG_OPTIONS},
            )
        self.histories: dict[str, SQLChatMessageHistory] = {}

    def _history(self, key: str) -> SQLChatMessageHistory:
        if key not in self.histories:
            self.histories[key] = SQLChatMessageHistory(key, connection=self.engine)
        return self.histories[key]

    def add(self, key: str, pair: Pair) -> None:
        kinds = {"user": HumanMessage, "assistant": AIMessage}
        self._history(key).add_messages(
            [kinds[item["role"]](content=item["content"]) for item in pair]
        )

    def newest(self, key: str, limit: int) -> Any:
        return self._history(key).messages[-limit:]  # it has no LIMIT of its own

    def everything(self, key: str) -> Any:
        return self._history(key).messages


def _tune(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={settings.SYNCHRONOUS}")


def _postgres_url(driver: str) -> str:
    pg = settings.POSTGRES
    return (
        f"{driver}://{pg['USER']}:{pg['PASSWORD']}@{pg['HOST']}:{pg['PORT']}"
        f"/{pg['NAME']}"
    )
