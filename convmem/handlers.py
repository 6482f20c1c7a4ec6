"""Aliases of ``settings.CONVMEM`` become instances: ``stores["default"]``."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from asgiref.local import Local
from django.utils.module_loading import import_string

from convmem.conf import AliasTable, settings
from convmem.exceptions import (
    ConfigurationError,
    UnknownMemory,
    UnknownService,
    UnknownStore,
)

if TYPE_CHECKING:
    from convmem.chat import ChatService
    from convmem.memory import MemoryProvider
    from convmem.stores import ChatMemory

T = TypeVar("T")


class AliasHandler(Generic[T]):
    """Builds each alias at first use, and again when its setting has changed.

    Stores and memory providers are one instance a thread (or asyncio context), as
    Django's caches are; chat services hold a connection pool and are one a process.
    """

    def __init__(
        self, name: str, error: type[ConfigurationError], *, per_process: bool = False
    ) -> None:
        self._name = name
        self._error = error
        self._built: Any = _Shared() if per_process else Local()
        self._lock = threading.Lock()

    @property
    def table(self) -> AliasTable:
        return settings.table(self._name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.table)

    def __contains__(self, alias: str) -> bool:
        return alias in self.table

    def __getitem__(self, alias: str) -> T:
        config = self._config(alias)
        found = self._lookup(alias, config)
        if found is not None:
            return found
        with self._lock:
            found = self._lookup(alias, config)
            if found is None:
                found = self.build(alias, config)
                setattr(self._built, alias, (config, found))
        return found

    def _lookup(self, alias: str, config: Mapping[str, Any]) -> T | None:
        built: tuple[Any, T] | None = getattr(self._built, alias, None)
        return built[1] if built is not None and built[0] == config else None

    def _config(self, alias: str) -> Mapping[str, Any]:
        table = self.table
        if alias not in table:
            known = ", ".join(sorted(table)) or "none"
            raise self._error(
                f'CONVMEM["{self._name}"] has no alias {alias!r}; known: {known}.',
                alias=alias,
            )
        return table[alias]

    def build(self, alias: str, config: Mapping[str, Any]) -> T:
        """Return a new instance: ``BACKEND(**OPTIONS)``, option names in lower case."""
        place = f'CONVMEM["{self._name}"]["{alias}"]'
        try:
            backend = import_string(config["BACKEND"])
        except KeyError:
            raise self._error(f"{place} needs a 'BACKEND'.", alias=alias) from None
        except ImportError as error:
            raise self._error(
                f"{place}: BACKEND {config['BACKEND']!r} cannot be imported ({error}).",
                alias=alias,
            ) from error
        options = {key.lower(): v for key, v in config.get("OPTIONS", {}).items()}
        try:
            built: T = backend(**options)
        except TypeError as error:
            raise self._error(
                f"{place}: OPTIONS refused ({error}).", alias=alias
            ) from (error)
        return built


class StoreHandler(AliasHandler["ChatMemory"]):
    """Gives each store its alias as namespace, so that two never share by accident."""

    def build(self, alias: str, config: Mapping[str, Any]) -> ChatMemory:
        options = {"NAMESPACE": alias, **config.get("OPTIONS", {})}
        return super().build(alias, {**config, "OPTIONS": options})


class _Shared:
    """Holds instances for the whole process."""


stores = StoreHandler("STORES", UnknownStore)
memories: AliasHandler[MemoryProvider] = AliasHandler("MEMORIES", UnknownMemory)
services: AliasHandler[ChatService] = AliasHandler(
    "SERVICES", UnknownService, per_process=True
)
