"""Owners: who a conversation belongs to, and the exact key it is found by."""

from __future__ import annotations

import hashlib

from convmem.exceptions import InvalidOwner
from convmem.messages import Value
from convmem.validation import MAX_ID_LENGTH, is_storable


class Owner(Value, frozen=True):
    """Two exact texts, for example ``Owner(name="user", id="42")``.

    `NOBODY` (both empty) owns what belongs to no one in particular.
    """

    name: str = ""
    id: str = ""

    def __str__(self) -> str:
        return f"{self.name}:{self.id}" if self.name else "(nobody)"


NOBODY = Owner()


def check_owner(owner: object) -> Owner:
    """Return ``owner`` if it is a well-formed `Owner`, else raise `InvalidOwner`."""
    if not isinstance(owner, Owner):
        raise InvalidOwner(f"owner must be an Owner, not {type(owner).__name__}.")
    for field, value in (("name", owner.name), ("id", owner.id)):
        if not isinstance(value, str):
            raise InvalidOwner(
                f"owner {field} must be a string, not {type(value).__name__}; "
                "use str(pk)."
            )
        if not is_storable(value):
            raise InvalidOwner(f"owner {field} holds U+0000 or a lone surrogate.")
        if len(value) > MAX_ID_LENGTH:
            raise InvalidOwner(
                f"owner {field} may have at most {MAX_ID_LENGTH} characters; "
                f"this one has {len(value)}."
            )
    if bool(owner.name) != bool(owner.id):
        raise InvalidOwner("owner needs both a name and an id, or neither.")
    return owner


def conversation_key(namespace: str, owner: Owner, conversation_id: str) -> str:
    """Return the 64 hex digits that find one conversation.

    Parts are length-prefixed before hashing, so that no two different triples share a
    key whatever characters they hold, on databases of any collation.
    """
    digest = hashlib.sha256()
    for part in (namespace, owner.name, owner.id, conversation_id):
        encoded = part.encode()
        digest.update(b"%d:" % len(encoded))
        digest.update(encoded)
    return digest.hexdigest()
