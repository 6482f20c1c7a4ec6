"""Conversation ids in URLs.

An id may hold any character, and a URL path may not: servers and clients decode
``%2F``, fold ``.`` and ``..``, and an id that ends in ``/messages`` would read as
another address. So an id has two written forms::

    support-42               plain, for ids of letters, digits and - _ . : @ + and space
    ~c3VwcG9ydC80Mg          a tilde and the id's UTF-8 bytes in base64url, for any id

Both are understood everywhere, and so is a percent-encoded id of other characters as
long as nothing on the way changes it. Links that the API writes use the safe form.
"""

from __future__ import annotations

import base64
import binascii
import re

from convmem.exceptions import InvalidConversationId
from convmem.validation import check_conversation_id

_PLAIN = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._:@+-][A-Za-z0-9._:@+ -]*")


class ConversationIdConverter:
    """A path converter for both forms; `decode_id` makes the id of what it matched."""

    regex = r"[\s\S]+"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return encode_id(value)


def encode_id(conversation_id: str) -> str:
    """Return the written form of an id that survives any URL handling."""
    if _PLAIN.fullmatch(conversation_id):
        return conversation_id
    encoded = base64.urlsafe_b64encode(conversation_id.encode()).decode()
    return "~" + encoded.rstrip("=")


def decode_id(written: str) -> str:
    """Return the id of one of its written forms; raise `InvalidConversationId`."""
    if not written.startswith("~"):
        return check_conversation_id(written)
    encoded = written[1:] + "=" * (-len(written[1:]) % 4)
    try:
        decoded = base64.b64decode(encoded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise InvalidConversationId(
            f"{written!r} is no conversation id: after a tilde comes the id's UTF-8 "
            "text in base64url."
        ) from error
    return check_conversation_id(decoded)
