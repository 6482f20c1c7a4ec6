"""The one setting, ``CONVMEM``, read live: a changed setting counts at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings as django_settings
from django.utils.module_loading import import_string

from convmem.exceptions import ConfigurationError

AliasTable = Mapping[str, Mapping[str, Any]]

DEFAULTS: dict[str, Any] = {
    "STORES": {"default": {"BACKEND": "convmem.stores.DatabaseStore"}},
    "MEMORIES": {"default": {"BACKEND": "convmem.memory.DefaultMemoryProvider"}},
    "SERVICES": {},
    "OWNER": "convmem.access.user_owner",
    "MAX_MESSAGE_BYTES": 1024 * 1024,
    "MAX_ROUNDS": 10,
    "ALLOW_RUN_IN_TRANSACTION": False,
}


class Settings:
    """Typed view of ``settings.CONVMEM``; each property reads it anew."""

    @property
    def raw(self) -> Mapping[str, Any]:
        value = getattr(django_settings, "CONVMEM", {})
        if not isinstance(value, Mapping):
            raise ConfigurationError(
                f"CONVMEM must be a dict, not {type(value).__name__}."
            )
        return value

    def _get(self, name: str) -> Any:
        return self.raw.get(name, DEFAULTS[name])

    def table(self, name: str) -> AliasTable:
        """Return an alias table; the built-in ``default`` alias is always there."""
        return {**DEFAULTS[name], **self.raw.get(name, {})}

    @property
    def max_message_bytes(self) -> int:
        """Most bytes of text (UTF-8) that one message may have."""
        return int(self._get("MAX_MESSAGE_BYTES"))

    @property
    def max_rounds(self) -> int:
        """Most model calls of one tool loop."""
        return int(self._get("MAX_ROUNDS"))

    @property
    def allow_run_in_transaction(self) -> bool:
        """Whether a model may be called inside an open transaction (for tests)."""
        return bool(self._get("ALLOW_RUN_IN_TRANSACTION"))

    @property
    def owner(self) -> Callable[..., Any]:
        """The function that maps a request to an `Owner`."""
        value = self._get("OWNER")
        function: Callable[..., Any] = (
            value if callable(value) else import_string(value)
        )
        return function


settings = Settings()
