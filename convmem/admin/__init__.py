"""The admin's pages. Subclass `ConversationAdmin` or `RunAdmin`, and register yours
instead, to change what they show; the ``get_...`` methods are there for it."""

from __future__ import annotations

from convmem.admin.conversation import ConversationAdmin
from convmem.admin.entries import EntryBuilder, Limits
from convmem.admin.run import RunAdmin
from convmem.admin.transcript import TranscriptMixin

__all__ = [
    "ConversationAdmin",
    "EntryBuilder",
    "Limits",
    "RunAdmin",
    "TranscriptMixin",
]
