"""System checks: what is wrong in ``CONVMEM``, where, and what to write instead.

Ids are stable and listed in docs/settings.md. Nothing here opens a connection. Stores,
memory providers and services report their own set-up from their ``check()``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from django.apps import AppConfig
from django.conf import settings as django_settings
from django.core import checks

from convmem import conf
from convmem.exceptions import ConfigurationError
from convmem.handlers import AliasHandler, memories, services, stores

HANDLERS: dict[str, AliasHandler[Any]] = {
    "STORES": stores,
    "MEMORIES": memories,
    "SERVICES": services,
}
ALIAS_KEYS = ("BACKEND", "OPTIONS")
#: What a handler found wrong with an alias -> the id and the remedy.
PROBLEMS = {
    "not_a_dict": ("E003", "Write {'BACKEND': 'dotted.path', 'OPTIONS': {...}}."),
    "no_backend": ("E004", "Name the class to use: 'BACKEND': 'dotted.path'."),
    "not_importable": ("E005", "Correct the dotted path, or install its package."),
    "wrong_kind": ("E006", "Name a class that has every verb of this kind."),
    "options_refused": ("E007", "Correct OPTIONS to what the backend accepts."),
}


@checks.register("convmem")
def check_settings(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """Check ``settings.CONVMEM`` and whatever its aliases build."""
    if app_configs is not None and not any(c.name == "convmem" for c in app_configs):
        return []
    try:
        raw = conf.settings.raw
    except ConfigurationError as error:
        return [_error("E001", error.message, "Write CONVMEM = {...}.")]
    found = [*_unknown_keys(raw), *_values()]
    for name, handler in HANDLERS.items():
        found += _aliases(name, handler)
    return found


@checks.register("convmem", deploy=True)
def check_deployment(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """Check what is fine in tests and on a laptop but not in production."""
    return [*_transactions(), *_connections()]


# --- keys and values ---


def _unknown_keys(raw: Mapping[str, Any]) -> Iterator[checks.CheckMessage]:
    for key in raw:
        if key not in conf.DEFAULTS:
            yield _unknown(f"CONVMEM has no setting {key!r}", key, conf.DEFAULTS)


def _values() -> Iterator[checks.CheckMessage]:
    """Yield the error of each key whose value is of a wrong kind."""
    for key, default in conf.DEFAULTS.items():
        try:
            if isinstance(default, Mapping):
                conf.settings.table(key)
            else:
                getattr(conf.settings, key.lower())
        except ConfigurationError as error:
            yield _error(
                "E009" if key == "OWNER" else "E003",
                error.message,
                f"Correct it, or leave it out for the default: {default!r}.",
            )


# --- aliases ---


def _aliases(name: str, handler: AliasHandler[Any]) -> Iterator[checks.CheckMessage]:
    try:
        table = handler.table
    except ConfigurationError:
        return  # not a dict: reported as E003
    for alias, config in table.items():
        if isinstance(config, Mapping):
            yield from _alias_keys(f'CONVMEM["{name}"]["{alias}"]', config)
            if name == "MEMORIES":
                yield from _store_of_memory(alias, config.get("OPTIONS"))
        yield from _built(handler, alias, config)


def _built(
    handler: AliasHandler[Any], alias: str, config: Any
) -> Iterator[checks.CheckMessage]:
    try:
        # Built for the check alone: a server that forks inherits no pool from it.
        instance = handler.build(alias, config)
    except ConfigurationError as error:
        number, hint = PROBLEMS[error.details["problem"]]
        yield _error(number, error.message, hint)
        return
    own_check = getattr(instance, "check", None)
    if callable(own_check):
        yield from own_check()


def _alias_keys(place: str, config: Mapping[str, Any]) -> Iterator[checks.CheckMessage]:
    for key in config:
        if key not in ALIAS_KEYS:
            yield _unknown(f"{place} has no key {key!r}", key, ALIAS_KEYS)


def _store_of_memory(alias: str, options: Any) -> Iterator[checks.CheckMessage]:
    """Yield the error of a memory whose ``STORE`` option names no store."""
    store = options.get("STORE") if isinstance(options, Mapping) else None
    if not isinstance(store, str):
        return
    try:
        known = sorted(stores)
    except ConfigurationError:
        return  # reported as E003
    if store not in known:
        yield _error(
            "E008",
            f'CONVMEM["MEMORIES"]["{alias}"]: OPTIONS["STORE"] names the unknown '
            f"store {store!r}.",
            f'Name an alias of CONVMEM["STORES"]: {", ".join(known)}.',
        )


# --- deployment ---


def _transactions() -> Iterator[checks.CheckMessage]:
    try:
        allowed = conf.settings.allow_run_in_transaction
    except ConfigurationError:
        return  # reported as E001 or E003
    if allowed:
        yield checks.Warning(
            'CONVMEM["ALLOW_RUN_IN_TRANSACTION"] is True: a failing model call can '
            "roll back the user's message.",
            hint="Keep it for tests; leave it out in production.",
            id="convmem.W001",
        )


def _connections() -> Iterator[checks.CheckMessage]:
    """Yield a warning for each PostgreSQL connection kept open under ASGI, where every
    thread that a request runs on would keep one of its own."""
    if not getattr(django_settings, "ASGI_APPLICATION", None):
        return
    for alias, database in django_settings.DATABASES.items():
        kept = database.get("CONN_MAX_AGE", 0) != 0
        if kept and "postgresql" in str(database.get("ENGINE")):
            yield checks.Warning(
                f'DATABASES["{alias}"] keeps connections open (CONN_MAX_AGE='
                f"{database['CONN_MAX_AGE']!r}) in a project that serves ASGI.",
                hint='Set CONN_MAX_AGE to 0 and OPTIONS["pool"] to True.',
                id="convmem.W002",
            )


def _unknown(what: str, key: object, known: Mapping[str, Any] | Sequence[str]) -> Any:
    close = get_close_matches(str(key).upper(), list(known), n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(known)}."
    return _error("E002", f"{what}.", hint)


def _error(number: str, message: str, hint: str) -> checks.Error:
    return checks.Error(message, hint=hint, id=f"convmem.{number}")
