"""The API key: read when a call is made, put on the request, kept nowhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from typing import TypeAlias

import httpx

from convmem.exceptions import ConfigurationError, ProviderError

#: The name of an environment variable, or a function that returns the key.
KeySource: TypeAlias = str | Callable[[], str]


def read_key(source: KeySource) -> str:
    """Return the key. Raises `ConfigurationError` with the variable's name."""
    name = source if isinstance(source, str) else "the api_key_env function"
    key = (os.environ.get(source, "") if isinstance(source, str) else source()).strip()
    if not key:
        raise ConfigurationError(
            f"No API key: {name} is not set or empty. Set it, or name another "
            "variable in api_key_env."
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        del key  # error reports show the variables of a frame
        raise ConfigurationError(
            f"The API key in {name} has characters that no HTTP header can carry."
        )
    return key


class KeyAuth(httpx.Auth):
    """Puts the key on each request as it is sent."""

    def __init__(self, source: KeySource, header: str, scheme: str) -> None:
        self._source = source
        self._header = header
        self._prefix = f"{scheme} " if scheme else ""

    def auth_flow(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers[self._header] = self._prefix + read_key(self._source)
        yield request


def scrub(error: ProviderError, source: KeySource | None) -> None:
    """Take the key out of an error that quotes what a server sent back."""
    if source is None:
        return
    try:
        key = read_key(source)
    except ConfigurationError:
        return  # taken away meanwhile
    error.message = error.message.replace(key, "[key]")
    error.args = (error.message,)
    error.details = {
        name: value.replace(key, "[key]") if isinstance(value, str) else value
        for name, value in error.details.items()
    }
