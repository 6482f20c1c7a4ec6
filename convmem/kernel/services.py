"""How a pure room learns what a project has configured.

The kernel may not look into settings. Django's app config installs its functions here;
without them (no Django) a kernel takes service objects only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from convmem.chat import ChatService
from convmem.exceptions import ConfigurationError, UnknownService

VERBS = ("complete", "acomplete", "stream", "astream")
DEFAULT_MAX_ROUNDS = 10


def _no_alias(alias: str) -> ChatService:
    raise UnknownService(
        f"The service alias {alias!r} cannot be looked up: 'convmem' is not in "
        "INSTALLED_APPS, or django.setup() has not run. Pass a service object.",
        alias=alias,
    )


class _Project:
    service: Callable[[str], ChatService] = staticmethod(_no_alias)
    max_rounds: Callable[[], int] = staticmethod(lambda: DEFAULT_MAX_ROUNDS)
    max_message_bytes: Callable[[], int] = staticmethod(lambda: sys.maxsize)


_project = _Project()


def install(
    *,
    service: Callable[[str], ChatService],
    max_rounds: Callable[[], int],
    max_message_bytes: Callable[[], int],
) -> None:
    """Say where aliases of services and the project's limits come from."""
    _project.service = service
    _project.max_rounds = max_rounds
    _project.max_message_bytes = max_message_bytes


def check_service(service: ChatService | str) -> ChatService | str:
    """Return an alias or a service object; raise `ConfigurationError` for others."""
    if isinstance(service, str) or all(
        callable(getattr(service, verb, None)) for verb in VERBS
    ):
        return service
    raise ConfigurationError(
        f"{type(service).__name__} is no chat service: pass an alias of "
        f'CONVMEM["SERVICES"] or an object with {", ".join(VERBS)}.'
    )


def resolve_service(service: ChatService | str) -> ChatService:
    """Return the service; an alias is looked up anew, as settings may change."""
    return _project.service(service) if isinstance(service, str) else service


def resolve_max_rounds(max_rounds: int | None) -> int:
    """Return the limit on calls of the model: given, or the project's own."""
    return _project.max_rounds() if max_rounds is None else max_rounds


def max_message_bytes() -> int:
    """Return the most bytes of text that one message may have."""
    return _project.max_message_bytes()
