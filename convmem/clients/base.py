"""A model service over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any, cast

import httpx

from convmem.chat import ChatRequest, Completion
from convmem.clients.deadlines import Deadlines, Timeouts
from convmem.clients.exchange import Dialect, Exchange, logger
from convmem.clients.keys import KeyAuth, KeySource, read_key
from convmem.clients.sources import (
    AsyncAnswer,
    SyncAnswer,
    afetch,
    aopen_stream,
    fetch,
    open_stream,
)
from convmem.dialects import openai
from convmem.dialects.profiles import Profile, get_profile
from convmem.dialects.wirejson import dumps
from convmem.exceptions import ConfigurationError

#: The module that speaks each dialect; `Profile.dialect` names one.
DIALECTS: Mapping[str, Dialect] = {"openai": cast(Dialect, openai)}

_FIELDS = frozenset(
    {
        "temperature",
        "top_p",
        "max_output_tokens",
        "stop",
        "seed",
        "response_format",
        "tool_choice",
        "parallel_tool_calls",
    }
)


class HttpChatService:
    """One model of one provider, called over HTTP: a `ChatService`.

    ``provider`` names a profile (openai, custom, ollama, groq, nvidia). ``base_url``
    replaces the provider's own address; then no key is sent unless ``api_key_env`` says
    which: a key is never given to an address it was not meant for. ``api_key_env`` is
    the name of an environment variable or a function that returns the key; it is read
    at each call and kept nowhere; an empty string means no key. ``timeout`` is a total
    in seconds, or a mapping of `Timeouts`. ``profile`` is a `Profile` or single values
    to change in the provider's. ``headers`` are sent with each call. ``defaults`` are
    request fields (``temperature``, ``max_output_tokens``...) or further parameters by
    their wire names, used where a request has none.

    Each call is one attempt. Errors are `ProviderError`s, and `ConfigurationError` when
    the key is missing. One service may be used by all threads and event loops.
    """

    def __init__(
        self,
        provider: str = "openai",
        model: str = "",
        *,
        base_url: str | None = None,
        api_key_env: KeySource | None = None,
        timeout: Timeouts | Mapping[str, Any] | float | None = None,
        profile: Profile | Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(profile, Profile):
            self.profile = profile
        else:
            self.profile = get_profile(provider, **dict(profile or {}))
        self.model = model
        self.timeouts = Timeouts.of(timeout)
        self.base_url = _checked_url(base_url or self.profile.base_url, self.profile)
        if api_key_env is None and base_url is None:
            api_key_env = self.profile.api_key_env
        self._key = api_key_env or None
        self._dialect = _dialect_of(self.profile)
        self._headers = {"User-Agent": _USER_AGENT, **(headers or {})}
        self._defaults = dict(defaults or {})

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.profile.name!r}, {self.model!r}, "
            f"base_url={str(self.base_url)!r})"
        )

    def complete(self, request: ChatRequest) -> Completion:
        """Call the model and return its whole answer."""
        return fetch(self._exchange(request, stream=False), self._auth())

    async def acomplete(self, request: ChatRequest) -> Completion:
        """Call the model and return its whole answer."""
        return await afetch(self._exchange(request, stream=False), self._auth())

    def stream(self, request: ChatRequest) -> SyncAnswer:
        """Call the model; return its answer when the first delta has come.

        All that goes wrong before is raised here; later, by reading the answer.
        """
        return open_stream(self._exchange(request, stream=True), self._auth())

    async def astream(self, request: ChatRequest) -> AsyncAnswer:
        """Call the model; return its answer when the first delta has come."""
        return await aopen_stream(self._exchange(request, stream=True), self._auth())

    def _auth(self) -> KeyAuth | None:
        if self._key is None:
            return None
        read_key(self._key)  # say that it is missing before anything is opened
        profile = self.profile
        return KeyAuth(self._key, profile.auth_header, profile.auth_scheme)

    def _exchange(self, request: ChatRequest, *, stream: bool) -> Exchange:
        request = self._filled(request)
        path, headers, body = self._dialect.encode_request(
            request, self.profile, stream=stream
        )
        dropped = self._dialect.dropped_parameters(request, self.profile)
        if dropped:
            logger.debug(
                "%s takes no %s: left out.", self.profile.name, ", ".join(dropped)
            )
        if stream:
            # A compressing proxy would hold events back.
            headers["Accept-Encoding"] = "identity"
        return Exchange(
            dialect=self._dialect,
            profile=self.profile,
            url=_joined(self.base_url, path),
            headers={**headers, **self._headers},
            content=dumps(body),
            key=self._key,
            deadlines=Deadlines(self.timeouts, total=request.timeout, streaming=stream),
            model=request.model,
            request_id=request.request_id,
            dropped=dropped,
            streaming=stream,
        )

    def _filled(self, request: ChatRequest) -> ChatRequest:
        """Return the request with this service's values where it has none."""
        fields = {name: getattr(request, name) for name in request.__struct_fields__}
        fields["model"] = request.model or self.model
        options: dict[str, Any] = {}
        for name, value in self._defaults.items():
            if name not in _FIELDS:
                options[name] = value
            elif fields[name] in (None, ()):
                fields[name] = tuple(value) if name == "stop" else value
        fields["options"] = {**options, **request.options}
        return ChatRequest(**fields)


def _version() -> str:
    try:
        return metadata.version("django-convmem")
    except metadata.PackageNotFoundError:  # run from a source tree
        return "0"


_USER_AGENT = f"django-convmem/{_version()}"


def _dialect_of(profile: Profile) -> Dialect:
    if profile.dialect not in DIALECTS:
        raise ConfigurationError(
            f"Profile {profile.name!r} names the unknown dialect "
            f"{profile.dialect!r}; known: {', '.join(DIALECTS)}."
        )
    return DIALECTS[profile.dialect]


def _checked_url(text: str | None, profile: Profile) -> httpx.URL:
    if not text:
        raise ConfigurationError(f"Provider {profile.name!r} needs a base_url.")
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise ConfigurationError(f"base_url is no URL ({error}).") from None
    if url.userinfo:
        raise ConfigurationError(
            "base_url must hold no user name or password; use api_key_env."
        )
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigurationError(
            f"base_url must begin with http:// or https:// and a host, not {text!r}."
        )
    return url


def _joined(base: httpx.URL, path: str) -> httpx.URL:
    """Return the address of ``path`` under ``base``, keeping the base's query."""
    return base.copy_with(path=base.path.rstrip("/") + path)
