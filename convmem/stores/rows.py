"""Between messages and what a backend keeps: checked batches out, messages back in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import force_setattr

from convmem.conf import settings
from convmem.exceptions import (
    BadInput,
    IdempotencyConflict,
    InvalidMessage,
    InvalidWindow,
)
from convmem.messages import ROLES, Message
from convmem.validation import MAX_ID_LENGTH, check_batch, storable

Given = Sequence[Message | dict[str, Any] | str]
#: What a backend keeps of a message: its position and its JSON text; more may follow.
Row = tuple[Any, ...]

#: What decoding a damaged text raises.
UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError, TypeError)

_decoder = msgspec.json.Decoder(Message)
#: The order of keys in a dict does not make another batch.
_canonical = msgspec.json.Encoder(order="deterministic")


class Batch(NamedTuple):
    """A checked batch: ``messages`` as they will be read back, ``bodies`` their JSON.

    ``key`` and ``digest`` are hex SHA-256 of the idempotency key and of the batch, or
    None without a key.
    """

    messages: list[Message]
    bodies: list[str]
    key: str | None = None
    digest: str | None = None

    def numbered(self, last: int) -> list[Message]:
        """Return the messages with their positions; the last one has ``last``."""
        first = last - len(self.messages) + 1
        for position, message in enumerate(self.messages, first):
            # The values are our own, just decoded, and nobody has seen them yet.
            force_setattr(message, "position", position)
        return self.messages

    def rows(self, last: int) -> list[Row]:
        """Return the rows to keep, when the last message has position ``last``."""
        return list(enumerate(self.bodies, last - len(self.bodies) + 1))


def prepare(given: Given, key: str | None = None) -> Batch:
    """Check what a caller wants to add; a message without ``created_at`` gets now.

    Raises `EmptyBatch`, `InvalidMessage`, `MessageTooLarge`, or `BadInput` for the key.
    """
    hashed = None if key is None else _hash_key(key)
    now = datetime.now(UTC)
    max_bytes = settings.max_message_bytes
    messages, bodies = [], []
    for index, message in enumerate(check_batch(given)):
        stamped = _stamped(message, now, index)
        stored, body = storable(stamped, index=index, max_bytes=max_bytes)
        messages.append(stored)
        bodies.append(body)
    return Batch(messages, bodies, hashed, _digest(messages) if hashed else None)


def read(rows: Iterable[Row]) -> Iterator[Message]:
    """Yield the message of each row; one that cannot be read comes as `corrupt`."""
    decode = _decoder.decode
    for position, body, *_ in rows:
        try:
            message = decode(body)
        except UNREADABLE:
            message = corrupt(position)
        else:
            force_setattr(message, "position", position)
        yield message


def read_all(rows: Sequence[Row]) -> list[Message]:
    """Return the messages of ``rows``, as `read` does."""
    decode = _decoder.decode
    try:
        messages = [decode(row[1]) for row in rows]
    except UNREADABLE:
        return list(read(rows))
    for row, message in zip(rows, messages, strict=True):
        force_setattr(message, "position", row[0])
    return messages


def corrupt(
    position: int,
    *,
    role: str = "user",
    created_at: datetime | None = None,
    **metadata: Any,
) -> Message:
    """Return the placeholder of a message that can no longer be read."""
    known: Any = role if role in ROLES else "user"
    return Message(
        role=known,
        content="",
        status="corrupt",
        metadata=metadata,
        created_at=created_at,
        position=position,
    )


def key_conflict(position: int) -> IdempotencyConflict:
    """Return the error of a key that stands for another batch, at ``position``."""
    return IdempotencyConflict(
        "This idempotency key was used for another batch of this conversation "
        f"(stored at position {position}); send a new key.",
        position=position,
    )


def check_limit(limit: object) -> int:
    """Return ``limit`` if it is a number of messages, else raise `InvalidWindow`."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise InvalidWindow(
            f"limit must be 0 or a positive integer, not {limit!r}.", limit=repr(limit)
        )
    return limit


def _stamped(message: Message, now: datetime, index: int) -> Message:
    at = message.created_at
    if at is None:
        return message.replace(created_at=now)
    if not isinstance(at, datetime):
        return message  # `storable` names the wrong type
    if at.utcoffset() is None:
        raise InvalidMessage(
            f"Message {index}, field 'created_at': {at.isoformat()} has no time zone; "
            "write the offset, for example ...+00:00.",
            index=index,
            field="created_at",
        )
    return message  # `storable` writes it in UTC


def _hash_key(key: object) -> str:
    """Hash the key, so that it is exact on databases of any collation."""
    if not isinstance(key, str) or not 0 < len(key) <= MAX_ID_LENGTH:
        raise BadInput(
            f"An idempotency key is a string of 1 to {MAX_ID_LENGTH} characters, "
            f"not {key!r:.80}.",
            field="key",
        )
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _digest(messages: Sequence[Message]) -> str:
    """Hash what the batch says; when it was sent is no part of that."""
    digest = hashlib.sha256()
    for message in messages:
        text = _canonical.encode(message.replace(created_at=None))
        digest.update(b"%d:" % len(text))
        digest.update(text)
    return digest.hexdigest()
