"""Model services over HTTP."""

from __future__ import annotations

from convmem.clients.base import HttpChatService
from convmem.clients.deadlines import Timeouts

__all__ = ["HttpChatService", "Timeouts"]
