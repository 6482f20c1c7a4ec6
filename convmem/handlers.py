"""Aliases of ``settings.CONVMEM`` become instances: ``stores["default"]``."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from asgiref.local import Local
from django.core.exceptions import ImproperlyConfigured
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
        self,
        name: str,
        error: type[ConfigurationError],
        *,
        verbs: tuple[str, ...],
        per_process: bool = False,
    ) -> None:
        self.name = name
        self._error = error
        self._verbs = verbs
        self._place: Any = _Shared() if per_process else Local()
        # A service may wrap another one of the same table, hence re-entrant.
        self._lock = threading.RLock()

    @property
    def table(self) -> AliasTable:
        return settings.table(self.name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.table)

    def __contains__(self, alias: object) -> bool:
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
                self._built()[alias] = (config, found)
        return found

    def _built(self) -> dict[str, tuple[Mapping[str, Any], T]]:
        built: dict[str, tuple[Mapping[str, Any], T]] | None
        built = getattr(self._place, "built", None)
        if built is None:
            built = self._place.built = {}
        return built

    def _lookup(self, alias: str, config: Mapping[str, Any]) -> T | None:
        built = self._built().get(alias)
        return built[1] if built is not None and built[0] == config else None

    def _config(self, alias: str) -> Any:
        table = self.table
        if alias not in table:
            known = ", ".join(sorted(table)) or "none"
            raise self._error(
                f'CONVMEM["{self.name}"] has no alias {alias!r}; known: {known}.',
                alias=alias,
            )
        return table[alias]

    def build(self, alias: str, config: Mapping[str, Any]) -> T:
        """Return a new instance: ``BACKEND(**OPTIONS)``, option names in lower case.

        Raises the handler's error; ``details["problem"]`` says which: ``not_a_dict``,
        ``no_backend``, ``not_importable``, ``options_refused``, ``wrong_kind``.
        """
        backend = self._backend(alias, config)
        options = config.get("OPTIONS", {})
        if not isinstance(options, Mapping):
            self._refuse(
                alias, "not_a_dict", f"OPTIONS must be a dict, {_not(options)}"
            )
        try:
            built: T = backend(**{key.lower(): v for key, v in options.items()})
        except (TypeError, ValueError, ConfigurationError, ImproperlyConfigured) as why:
            self._refuse(alias, "options_refused", f"OPTIONS refused ({why})", why)
        missing = [verb for verb in self._verbs if not hasattr(built, verb)]
        if missing:
            self._refuse(
                alias,
                "wrong_kind",
                f"BACKEND {config['BACKEND']!r} has no {', no '.join(missing)}",
            )
        return built

    def _backend(self, alias: str, config: Mapping[str, Any]) -> Any:
        if not isinstance(config, Mapping):
            self._refuse(
                alias, "not_a_dict", f"an alias must be a dict, {_not(config)}"
            )
        path = config.get("BACKEND")
        if not path:
            self._refuse(alias, "no_backend", "'BACKEND' is missing: a dotted path")
        try:
            backend = import_string(path) if isinstance(path, str) else path
        except ImportError as error:
            why = f"BACKEND {path!r} cannot be imported ({error})"
            self._refuse(alias, "not_importable", why, error)
        if not callable(backend):
            self._refuse(alias, "wrong_kind", f"BACKEND {path!r} is not a class")
        return backend

    def _refuse(
        self, alias: str, problem: str, why: str, cause: Exception | None = None
    ) -> NoReturn:
        raise self._error(
            f'CONVMEM["{self.name}"]["{alias}"]: {why}.', alias=alias, problem=problem
        ) from cause


class StoreHandler(AliasHandler["ChatMemory"]):
    """Gives each store its alias as namespace, so that two never share by accident."""

    def build(self, alias: str, config: Mapping[str, Any]) -> ChatMemory:
        if isinstance(config, Mapping):
            options = config.get("OPTIONS", {})
            if isinstance(options, Mapping):
                config = {**config, "OPTIONS": {"NAMESPACE": alias, **options}}
        return super().build(alias, config)


class _Shared:
    """Holds instances for the whole process."""


def _not(value: object) -> str:
    # The kind alone: a URL written in the wrong place may hold a password.
    return f"not {type(value).__name__}"


stores = StoreHandler("STORES", UnknownStore, verbs=("get", "add", "clear"))
memories: AliasHandler[MemoryProvider] = AliasHandler(
    "MEMORIES", UnknownMemory, verbs=("history", "append", "prepare", "clear")
)
services: AliasHandler[ChatService] = AliasHandler(
    "SERVICES",
    UnknownService,
    verbs=("complete", "acomplete", "stream", "astream"),
    per_process=True,
)
