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
    "convmem.chat": ("ChatRequest", "ChatService", "Completion"),
    "convmem.exceptions": ("ConvmemError",),
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
    "convmem.owners": ("NOBODY", "Owner"),
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = [
    "NOBODY",
    "AudioPart",
    "ChatRequest",
    "ChatService",
    "Completion",
    "ConvmemError",
    "FilePart",
    "ImagePart",
    "Message",
    "OpaquePart",
    "Owner",
    "ReasoningPart",
    "RefusalPart",
    "TextPart",
    "ToolCall",
    "Usage",
    "VideoPart",
]

if TYPE_CHECKING:
    from convmem.chat import ChatRequest as ChatRequest
    from convmem.chat import ChatService as ChatService
    from convmem.chat import Completion as Completion
    from convmem.exceptions import ConvmemError as ConvmemError
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
else:
    # Hidden from type checkers, which would otherwise let every misspelt name pass.
    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
