"""Conversation memory and model routing for LLM applications in Django.

The names below are the public surface. They load at first use (PEP 562), so that
``convmem`` can stand in INSTALLED_APPS and be imported anywhere, before the apps are
ready, at no cost. Instances by alias are in `convmem.handlers`, errors in
`convmem.exceptions`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

#: Module -> the public names it has. No name may be that of a module or package of
#: convmem: importing the module would put it in the name's place.
_PUBLIC = {
    "convmem.agent": (
        "Agent",
        "register_agent",
    ),
    "convmem.chat": (
        "ChatRequest",
        "ChatService",
        "Completion",
    ),
    "convmem.clients": ("HttpChatService",),
    "convmem.exceptions": (
        "ConvmemError",
        "ToolError",
    ),
    "convmem.kernel.context": (
        "Context",
        "Result",
    ),
    "convmem.kernel.kernel": ("Kernel",),
    "convmem.kernel.tools": ("tool",),
    "convmem.memory": (
        "DefaultMemoryProvider",
        "MemoryProvider",
        "MessageWindow",
        "TokenWindow",
        "TurnWindow",
        "View",
        "Window",
        "safe_window",
    ),
    "convmem.memory.filter": ("memory_filter",),
    "convmem.messages": (
        "AudioPart",
        "FilePart",
        "ImagePart",
        "Message",
        "OpaquePart",
        "ReasoningPart",
        "RefusalPart",
        "TextPart",
        "ToolCall",
        "Usage",
        "VideoPart",
    ),
    "convmem.owners": (
        "NOBODY",
        "Owner",
    ),
    "convmem.pipeline": (
        "arun_agent",
        "run_agent",
    ),
    "convmem.stores": (
        "CacheStore",
        "ChatMemory",
        "DatabaseStore",
        "LocalStore",
    ),
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = [
    "Agent",
    "AudioPart",
    "CacheStore",
    "ChatMemory",
    "ChatRequest",
    "ChatService",
    "Completion",
    "Context",
    "ConvmemError",
    "DatabaseStore",
    "DefaultMemoryProvider",
    "FilePart",
    "HttpChatService",
    "ImagePart",
    "Kernel",
    "LocalStore",
    "MemoryProvider",
    "Message",
    "MessageWindow",
    "NOBODY",
    "OpaquePart",
    "Owner",
    "ReasoningPart",
    "RefusalPart",
    "Result",
    "TextPart",
    "TokenWindow",
    "ToolCall",
    "ToolError",
    "TurnWindow",
    "Usage",
    "VideoPart",
    "View",
    "Window",
    "arun_agent",
    "memory_filter",
    "register_agent",
    "run_agent",
    "safe_window",
    "tool",
]

if TYPE_CHECKING:
    from convmem.agent import Agent as Agent
    from convmem.agent import register_agent as register_agent
    from convmem.chat import ChatRequest as ChatRequest
    from convmem.chat import ChatService as ChatService
    from convmem.chat import Completion as Completion
    from convmem.clients import HttpChatService as HttpChatService
    from convmem.exceptions import ConvmemError as ConvmemError
    from convmem.exceptions import ToolError as ToolError
    from convmem.kernel.context import Context as Context
    from convmem.kernel.context import Result as Result
    from convmem.kernel.kernel import Kernel as Kernel
    from convmem.kernel.tools import tool as tool
    from convmem.memory import DefaultMemoryProvider as DefaultMemoryProvider
    from convmem.memory import MemoryProvider as MemoryProvider
    from convmem.memory import MessageWindow as MessageWindow
    from convmem.memory import TokenWindow as TokenWindow
    from convmem.memory import TurnWindow as TurnWindow
    from convmem.memory import View as View
    from convmem.memory import Window as Window
    from convmem.memory import safe_window as safe_window
    from convmem.memory.filter import memory_filter as memory_filter
    from convmem.messages import AudioPart as AudioPart
    from convmem.messages import FilePart as FilePart
    from convmem.messages import ImagePart as ImagePart
    from convmem.messages import Message as Message
    from convmem.messages import OpaquePart as OpaquePart
    from convmem.messages import ReasoningPart as ReasoningPart
    from convmem.messages import RefusalPart as RefusalPart
    from convmem.messages import TextPart as TextPart
    from convmem.messages import ToolCall as ToolCall
    from convmem.messages import Usage as Usage
    from convmem.messages import VideoPart as VideoPart
    from convmem.owners import NOBODY as NOBODY
    from convmem.owners import Owner as Owner
    from convmem.pipeline import arun_agent as arun_agent
    from convmem.pipeline import run_agent as run_agent
    from convmem.stores import CacheStore as CacheStore
    from convmem.stores import ChatMemory as ChatMemory
    from convmem.stores import DatabaseStore as DatabaseStore
    from convmem.stores import LocalStore as LocalStore
else:
    # Hidden from type checkers, which would otherwise let every misspelt name pass.
    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
