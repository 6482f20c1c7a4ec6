"""convmem and the raw driver behind one set of names."""

from __future__ import annotations

from collections.abc import Callable

from django.db import connections

from benchmarks.floors import Floor, PostgresFloor, SqliteFloor
from convmem.messages import Message, encode
from convmem.owners import NOBODY, conversation_key
from convmem.stores import DatabaseStore

NAMESPACE = "bench"
TURN = [
    {"role": "user", "content": "How do I renew a library card that has expired? " * 2},
    {
        "role": "assistant",
        "content": "Bring an identity card to the desk; it takes a minute. " * 4,
    },
]
MESSAGES = [Message(**item) for item in TURN]
BODIES = [encode(message) for message in MESSAGES]


def store(database: str) -> DatabaseStore:
    return DatabaseStore(namespace=NAMESPACE, using=database)


def floor(database: str) -> Floor:
    return SqliteFloor() if database == "default" else PostgresFloor()


def key(conversation: str) -> str:
    return conversation_key(NAMESPACE, NOBODY, conversation)


def fill(database: str, conversation: str, count: int) -> None:
    """Make the conversation hold ``count`` messages."""
    memory = store(database)
    missing = count - memory.totals(conversation).count
    while missing > 0:
        batch = min(missing, 1000)
        memory.add(conversation, (MESSAGES * (batch // 2 + 1))[:batch])
        missing -= batch


def appender(kind: str, database: str, conversation: str) -> Callable[[], object]:
    """Return a call that appends one turn of two messages."""
    if kind == "raw":
        raw, found = floor(database), key(conversation)
        return lambda: raw.append(found, BODIES)
    memory = store(database)
    return lambda: memory.add(conversation, MESSAGES)


def analyze(database: str) -> None:
    """Let the planner know how large the tables have become, for all alike."""
    with connections[database].cursor() as cursor:
        cursor.execute("ANALYZE")
