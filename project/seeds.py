"""Demo data: a dozen conversations from a file, and a long one made by rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from django.contrib.auth.models import User
from django.utils import timezone

from convmem.handlers import stores
from convmem.owners import NOBODY, Owner
from convmem.stores import ChatMemory
from project.offline_rules import reply_to
from project.tools import calculate

DATA = Path(__file__).resolve().parent / "data"
LONG_ID = "sums-all-day"
_PAUSE = timedelta(seconds=40)


def seed(now: datetime | None = None) -> int:
    """Store each demo conversation that is missing; return how many were.

    Conversations that have messages are left alone, so what a visitor added stays.
    The owners' logins are made when they are missing, without a password.
    """
    now = timezone.now() if now is None else now
    return sum(_seed_one(conversation, now) for conversation in conversations())


def conversations() -> Iterator[dict[str, Any]]:
    """Yield ``{"id", "owner", "days_ago", "messages"}`` of every demo conversation."""
    text = (DATA / "conversations.yaml").read_text(encoding="utf-8")
    yield from yaml.safe_load(text)
    messages = list(long_conversation())
    yield {"id": LONG_ID, "owner": "admin", "days_ago": 1, "messages": messages}


def long_conversation(rounds: int = 60) -> Iterator[dict[str, Any]]:
    """Yield a day of sums: five messages a round, a tool call in each."""
    yield {"role": "system", "content": "You work out sums with the tool."}
    for number in range(1, rounds + 1):
        asked = f"What is {number * 7} * ({number} + {number % 9 + 2})?"
        user = {"role": "user", "content": asked}
        (call,) = reply_to([user], [_CALCULATE]).calls
        call_id = f"call_sum_{number:03}"
        result = {
            "role": "tool",
            "tool_call_id": call_id,
            "content": calculate(asked.removeprefix("What is ").removesuffix("?")),
        }
        wire = {"id": call_id, "function": {"name": call.name}}
        asking = {"role": "assistant", "tool_calls": [wire]}
        answer = reply_to([user, asking, result]).text
        yield user
        call_value = {"id": call_id, "name": call.name, "arguments": call.arguments}
        yield {"role": "assistant", "tool_calls": [call_value]}
        yield result
        yield {"role": "assistant", "content": answer, "model": "offline"}
        yield {"role": "user", "content": f"Thanks, that was sum number {number}."}


_CALCULATE = {
    "type": "function",
    "function": {
        "name": "calculate",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string"}},
            "required": ["expression"],
        },
    },
}


def owner_of_login(login: str) -> Owner:
    """Return the owner of a login's conversations; ``nobody`` is `NOBODY`."""
    if login == "nobody":
        return NOBODY
    user, created = User._default_manager.get_or_create(username=login)
    if created:
        user.set_unusable_password()
        user.save()
    return Owner(name="user", id=str(user.pk))


def _seed_one(conversation: Mapping[str, Any], now: datetime) -> bool:
    store = stores["default"].for_owner(owner_of_login(conversation["owner"]))
    if store.totals(conversation["id"]).count:
        return False
    messages = conversation["messages"]
    days = conversation["days_ago"]
    end = now - timedelta(days=days, minutes=5 + 17 * days)
    start = end - _PAUSE * len(messages)
    dated = [
        {**message, "created_at": start + _PAUSE * index}
        for index, message in enumerate(messages)
    ]
    _store(store, conversation["id"], dated)
    return True


def _store(store: ChatMemory, conversation_id: str, messages: list[Any]) -> None:
    """Append in two batches where a message supersedes an earlier one: the file counts
    from 1, the store's positions may begin later."""
    cut = next((i for i, m in enumerate(messages) if m.get("supersedes")), 0)
    earlier = store.add(conversation_id, messages[:cut]) if cut else []
    rest = [
        {**m, "supersedes": [earlier[n - 1].position for n in m.get("supersedes", ())]}
        for m in messages[cut:]
    ]
    store.add(conversation_id, rest)
