"""The forms in which a memory may be named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from convmem.exceptions import UnknownMemory
from convmem.handlers import memories
from convmem.memory.provider import DefaultMemoryProvider, MemoryProvider
from convmem.owners import NOBODY, Owner

Memory: TypeAlias = MemoryProvider | Mapping[str, Any] | str | bool | None
FORMS = (
    'memory takes: nothing or "default" (the default memory), {"window": N}, '
    '{"store": store} (these two may be combined), a memory provider, None or False '
    '(no memory), or an alias of CONVMEM["MEMORIES"]'
)


def check_form(form: Memory) -> MemoryProvider | str | None:
    """Return a provider, an alias to look up at each use, or None for no memory.

    Raises `UnknownMemory`, which names the forms, `InvalidWindow` and `UnknownStore`.
    """
    if form is None or form is False:
        return None
    if isinstance(form, str | MemoryProvider):
        return form
    if isinstance(form, Mapping) and form and set(form) <= {"window", "store"}:
        return DefaultMemoryProvider(form.get("store"), form.get("window"))
    keys = sorted(map(str, form)) if isinstance(form, Mapping) else None
    shown = type(form).__name__ if keys is None else f"a dict with the keys {keys}"
    raise UnknownMemory(f"{FORMS}; not {shown:.120}.")


def provider_of(
    memory: MemoryProvider | str | None, owner: Owner
) -> MemoryProvider | None:
    """Return the provider bound to ``owner``; `NOBODY` takes it as it is bound.

    Raises `UnknownMemory` for an alias that is not there, `OwnerMismatch` for a
    provider that is bound to somebody else.
    """
    provider = memories[memory] if isinstance(memory, str) else memory
    if provider is None or owner == NOBODY:
        return provider
    return provider.for_owner(owner)
