"""The app's tables."""

from __future__ import annotations

from convmem.models.conversation import Conversation, StoredMessage
from convmem.models.run import Run

__all__ = ["Conversation", "Run", "StoredMessage"]
