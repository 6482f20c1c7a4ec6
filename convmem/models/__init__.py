"""The app's tables."""

from __future__ import annotations

from convmem.models.conversation import Conversation, StoredMessage

__all__ = ["Conversation", "StoredMessage"]
