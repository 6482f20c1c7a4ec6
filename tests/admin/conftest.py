"""Conversations to look at, and the people who look."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from convmem.messages import Message, encode
from convmem.models import Conversation, StoredMessage
from convmem.owners import NOBODY, Owner, conversation_key

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
ADA = Owner(name="user", id="42")

Make = Callable[..., Conversation]


@pytest.fixture
def make(db) -> Make:
    """Return a function that writes a conversation as rows.

    Rows and not a store, so that a body may also be what no store would write: a text
    stands for a row that cannot be read.
    """
    numbers = itertools.count(1)

    def write(
        messages: Sequence[Message | str] = (),
        conversation_id: str = "",
        owner: Owner = ADA,
        start: datetime = START,
        statuses: dict[int, str] | None = None,
        first: int = 1,
    ) -> Conversation:
        conversation_id = conversation_id or f"conversation-{next(numbers)}"
        conversation = Conversation.objects.create(
            key=conversation_key("default", owner, conversation_id),
            namespace="default",
            owner_name=owner.name,
            owner_id=owner.id,
            conversation_id=conversation_id,
            last_position=first + len(messages) - 1,
            message_count=len(messages),
            created_at=start,
            last_message_at=start + timedelta(seconds=len(messages)),
        )
        rows = [
            _row(conversation, position, message, statuses or {})
            for position, message in enumerate(messages, first)
        ]
        StoredMessage.objects.bulk_create(rows, batch_size=500)
        return conversation

    return write


def _row(
    conversation: Conversation,
    position: int,
    message: Message | str,
    statuses: dict[int, str],
) -> StoredMessage:
    readable = isinstance(message, Message)
    return StoredMessage(
        conversation=conversation,
        position=position,
        role=message.role if readable else "assistant",
        status=statuses.get(position, message.status if readable else "complete"),
        body=encode(message) if readable else message,
        text=message.text if readable else "",
        created_at=conversation.created_at + timedelta(seconds=position),
    )


@pytest.fixture
def superuser(db) -> User:
    return User.objects.create_superuser("root", "root@example.com", "root")


@pytest.fixture
def staff(superuser: User, client: Client) -> Client:
    """A client that may do everything."""
    client.force_login(superuser)
    return client


@pytest.fixture
def staff_with(db) -> Callable[..., Client]:
    """Return a function: permission names -> client of a staff member with them."""

    def login(*codenames: str) -> Client:
        user = User.objects.create_user("clerk", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        client = Client()
        client.force_login(user)
        return client

    return login


def page_url(name: str, *args: object) -> str:
    """Return the address of an admin page of conversations."""
    return reverse(f"admin:convmem_conversation_{name}", args=args)


def find_chromium() -> str:
    """Return the path of a Chromium; without one skip the test (with CI=true fail)."""
    for name in (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "chrome"):
        found = name and shutil.which(name)
        if found:
            return found
    message = "no Chromium found on PATH (CHROMIUM may name one)"
    if os.environ.get("CI", "").lower() in {"1", "true", "yes"}:
        pytest.fail(message)
    pytest.skip(message)


__all__ = ["ADA", "NOBODY", "START", "find_chromium", "page_url"]
