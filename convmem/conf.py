"""The one setting, ``CONVMEM``, read live: a changed setting counts at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings as django_settings
from django.utils.module_loading import import_string

from convmem.exceptions import ConfigurationError
from convmem.messages import ROLES

#: Alias -> ``{"BACKEND": dotted path, "OPTIONS": {...}}``; unchecked, as settings are.
AliasTable = Mapping[str, Any]

#: Every key of ``CONVMEM`` with its default. A dict is a table of aliases (`table`);
#: each other key has a property of its name in lower case, which checks the value.
DEFAULTS: dict[str, Any] = {
    "STORES": {"default": {"BACKEND": "convmem.stores.DatabaseStore"}},
    "MEMORIES": {"default": {"BACKEND": "convmem.memory.DefaultMemoryProvider"}},
    "SERVICES": {},
    "OWNER": "convmem.access.user_owner",
    "MAX_MESSAGE_BYTES": 1024 * 1024,
    "MAX_ROUNDS": 10,
    "ALLOW_RUN_IN_TRANSACTION": False,
    "APPEND_ROLES": ("user", "assistant", "tool"),
}


class Settings:
    """Typed view of ``settings.CONVMEM``; each property reads it anew.

    A value of a wrong type raises `ConfigurationError`, which names it, at use;
    ``manage.py check`` reports the same before.
    """

    @property
    def raw(self) -> Mapping[str, Any]:
        value = getattr(django_settings, "CONVMEM", {})
        if not isinstance(value, Mapping):
            raise ConfigurationError(f"CONVMEM must be a dict, not {_kind(value)}.")
        return value

    def _get(self, name: str) -> Any:
        return self.raw.get(name, DEFAULTS[name])

    def _positive(self, name: str) -> int:
        value = self._get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigurationError(
                f'CONVMEM["{name}"] must be a whole number of at least 1, '
                f"not {value!r}."
            )
        return value

    def table(self, name: str) -> AliasTable:
        """Return an alias table; the built-in ``default`` alias is always there."""
        own = self.raw.get(name, {})
        if not isinstance(own, Mapping):
            raise ConfigurationError(
                f'CONVMEM["{name}"] must be a dict of aliases, not {_kind(own)}.'
            )
        return {**DEFAULTS[name], **own}

    @property
    def max_message_bytes(self) -> int:
        """Most bytes of text (UTF-8) that one message may have."""
        return self._positive("MAX_MESSAGE_BYTES")

    @property
    def max_rounds(self) -> int:
        """Most model calls of one tool loop."""
        return self._positive("MAX_ROUNDS")

    @property
    def allow_run_in_transaction(self) -> bool:
        """Whether a model may be called inside an open transaction (for tests)."""
        value = self._get("ALLOW_RUN_IN_TRANSACTION")
        if not isinstance(value, bool):
            raise ConfigurationError(
                'CONVMEM["ALLOW_RUN_IN_TRANSACTION"] must be True or False, '
                f"not {value!r}."
            )
        return value

    @property
    def append_roles(self) -> frozenset[str]:
        """Roles of the messages that a caller of the API may append.

        System and developer messages are instructions: whoever may add one speaks in
        the project's voice.
        """
        value = self._get("APPEND_ROLES")
        if not isinstance(value, list | tuple | set | frozenset) or not all(
            role in ROLES for role in value
        ):
            raise ConfigurationError(
                f'CONVMEM["APPEND_ROLES"] must be a list of {", ".join(ROLES)}, '
                f"not {value!r}."
            )
        return frozenset(value)

    @property
    def owner(self) -> Callable[..., Any]:
        """The function that maps a request to an `Owner`."""
        return self._function("OWNER")

    def _function(self, name: str) -> Callable[..., Any]:
        value = self._get(name)
        try:
            function = import_string(value) if isinstance(value, str) else value
        except ImportError as error:
            raise ConfigurationError(
                f'CONVMEM["{name}"]: {value!r} cannot be imported ({error}).'
            ) from error
        if not callable(function):
            raise ConfigurationError(
                f'CONVMEM["{name}"] must be a function or the dotted path of one, '
                f"not {value!r}."
            )
        found: Callable[..., Any] = function
        return found


def _kind(value: object) -> str:
    return type(value).__name__


settings = Settings()
