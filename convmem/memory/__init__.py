"""Policy of conversation memory: what of a history a model sees."""

from __future__ import annotations

from convmem.memory.budget import TokenWindow
from convmem.memory.provider import DefaultMemoryProvider, MemoryProvider
from convmem.memory.repair import repair
from convmem.memory.validity import is_valid_for_provider, violations
from convmem.memory.view import Dropped, History, PartTokens, Unread, View
from convmem.memory.windows import (
    Choice,
    MessageWindow,
    SuffixWindow,
    TurnWindow,
    Window,
    safe_window,
)

__all__ = [
    "Choice",
    "DefaultMemoryProvider",
    "Dropped",
    "History",
    "MemoryProvider",
    "MessageWindow",
    "PartTokens",
    "SuffixWindow",
    "TokenWindow",
    "TurnWindow",
    "Unread",
    "View",
    "Window",
    "is_valid_for_provider",
    "repair",
    "safe_window",
    "violations",
]
