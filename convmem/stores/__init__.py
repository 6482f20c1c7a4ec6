"""Where conversations are kept."""

from __future__ import annotations

from convmem.stores.base import ChatMemory, Loaded, Totals
from convmem.stores.cache import CacheStore
from convmem.stores.database import DatabaseStore
from convmem.stores.local import LocalStore

__all__ = [
    "CacheStore",
    "ChatMemory",
    "DatabaseStore",
    "Loaded",
    "LocalStore",
    "Totals",
]
