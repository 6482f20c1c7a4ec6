"""Which model the demo talks to: the environment decides."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.conf import settings

from project.offline_model import OfflineModel
from project.offline_wire import MODEL

BACKEND = "convmem.clients.HttpChatService"
OFFLINE_URL = "http://127.0.0.1:8765/v1"


def chat_service(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the entry for ``CONVMEM["SERVICES"]`` that the environment asks for.

    ``OPENAI_API_KEY`` (with ``OPENAI_MODEL`` and ``OPENAI_BASE_URL``) comes first, then
    ``OLLAMA_HOST`` (with ``OLLAMA_MODEL``), else the offline model at
    ``CONVMEM_OFFLINE_URL``. ``CONVMEM_OFFLINE=1`` asks for the offline model whatever
    else is set. A key stays in the environment: the entry names the variable.
    """
    offline = environ.get("CONVMEM_OFFLINE") == "1"
    options: dict[str, Any]
    if environ.get("OPENAI_API_KEY") and not offline:
        options = {
            "PROVIDER": "openai",
            "MODEL": environ.get("OPENAI_MODEL", "gpt-4o-mini"),
            "API_KEY_ENV": "OPENAI_API_KEY",
        }
        if environ.get("OPENAI_BASE_URL"):
            options["BASE_URL"] = environ["OPENAI_BASE_URL"]
    elif environ.get("OLLAMA_HOST") and not offline:
        options = {
            "PROVIDER": "ollama",
            "MODEL": environ.get("OLLAMA_MODEL", "llama3.2"),
            "BASE_URL": _ollama_url(environ["OLLAMA_HOST"]),
        }
    else:
        options = {
            "PROVIDER": "custom",
            "MODEL": MODEL,
            "BASE_URL": environ.get("CONVMEM_OFFLINE_URL", OFFLINE_URL),
        }
    return {"BACKEND": BACKEND, "OPTIONS": options}


def is_offline(service: Mapping[str, Any]) -> bool:
    """Return whether an entry of ``CONVMEM["SERVICES"]`` names the offline model."""
    options: Mapping[str, Any] = service["OPTIONS"]
    return (options["PROVIDER"], options["MODEL"]) == ("custom", MODEL)


def label(service: Mapping[str, Any]) -> str:
    """Return a line for people, for example ``offline at http://127.0.0.1:8765/v1``."""
    options = service["OPTIONS"]
    where = options.get("BASE_URL") or f"{options['PROVIDER']}'s own address"
    return f"{options['MODEL']} at {where}"


@contextmanager
def running_model(*, delay: float = 0.0) -> Iterator[dict[str, Any]]:
    """Start the offline model on a free port if it is the chosen one, and yield the
    service's entry, which ``settings.CONVMEM`` and child processes then use too."""
    service = chat_service(os.environ)
    if not is_offline(service):
        yield service
        return
    with OfflineModel(delay=delay) as model:
        before = os.environ.get("CONVMEM_OFFLINE_URL")
        os.environ["CONVMEM_OFFLINE_URL"] = model.base_url
        service = chat_service(os.environ)
        try:
            with using_service(service):
                yield service
        finally:
            if before is None:
                del os.environ["CONVMEM_OFFLINE_URL"]
            else:
                os.environ["CONVMEM_OFFLINE_URL"] = before


@contextmanager
def using_service(service: dict[str, Any]) -> Iterator[None]:
    """Make ``service`` the alias ``default`` for a while. ``CONVMEM`` is read live."""
    before = settings.CONVMEM
    services = {**before.get("SERVICES", {}), "default": service}
    settings.CONVMEM = {**before, "SERVICES": services}
    try:
        yield
    finally:
        settings.CONVMEM = before


def _ollama_url(host: str) -> str:
    """Return the address of Ollama's OpenAI-compatible API for an ``OLLAMA_HOST``:
    ``0.0.0.0``, ``host:port`` or a URL."""
    scheme, _, rest = host.rpartition("://")
    address, slash, path = rest.partition("/")
    name, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        name, port = address, "11434"
    name = "127.0.0.1" if name in ("", "0.0.0.0") else name  # noqa: S104 - not a bind
    path = f"{slash}{path}".rstrip("/")
    return f"{scheme or 'http'}://{name}:{port}{path.removesuffix('/v1')}/v1"
