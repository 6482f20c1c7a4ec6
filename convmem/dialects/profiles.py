"""What each provider does in its own way, as data.

A dialect reads these values and has no ``if provider == ...``. Change single values
with `Profile.replace` or with the ``profile`` option of a service.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from convmem.exceptions import ConfigurationError

NullContent: TypeAlias = Literal["null", "omit", "empty"]
Terminal: TypeAlias = Literal["done", "finish_reason"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A provider's address and quirks.

    Address: ``base_url``, ``path`` and ``models_path`` behind it, ``api_key_env`` (the
    environment variable that holds the key at the provider's own address; None: no
    key), ``auth_header`` and ``auth_scheme`` that carry it, ``headers`` for every call,
    ``request_id_headers`` that carry the caller's request id.

    Parameters: ``renames`` maps a wire name to this provider's name; ``parameters`` is
    the allow-list (None: any) and ``refused`` what is known to fail. What they remove
    is reported.

    Messages: ``null_content`` is what an assistant message with tool calls and no text
    sends; ``empty_arguments`` replaces an empty arguments text; ``developer_role`` and
    ``names`` say whether that role and ``name`` are understood (else `system`, and left
    out); ``refusal_parts`` whether a refusal may go back as a part (else as text);
    ``history_reasoning`` is the field in which reasoning goes back (None: it does not);
    ``extra_fields`` are unknown fields of messages, parts and calls that go back (None:
    all of them).

    Answers: ``reasoning_fields`` are looked at in order; ``stream_usage`` asks for
    usage in a stream; ``terminal`` is what ends a stream: ``done`` (the ``[DONE]``
    line) or ``finish_reason`` (for a server that never sends it).
    """

    name: str
    dialect: str = "openai"
    base_url: str | None = None
    path: str = "/chat/completions"
    models_path: str = "/models"
    api_key_env: str | None = None
    auth_header: str = "Authorization"
    auth_scheme: str = "Bearer"
    headers: Mapping[str, str] = field(default_factory=dict)
    request_id_headers: tuple[str, ...] = ("X-Request-Id", "Idempotency-Key")
    renames: Mapping[str, str] = field(default_factory=dict)
    parameters: frozenset[str] | None = None
    refused: frozenset[str] = frozenset()
    null_content: NullContent = "null"
    empty_arguments: str = "{}"
    developer_role: bool = False
    names: bool = False
    refusal_parts: bool = False
    history_reasoning: str | None = None
    extra_fields: frozenset[str] | None = frozenset()
    reasoning_fields: tuple[str, ...] = ("reasoning_content", "reasoning")
    stream_usage: bool = True
    terminal: Terminal = "done"

    def replace(self, **changes: Any) -> Profile:
        """Return a copy with some values changed.

        Lists and sets may be given for tuples and frozensets, as settings hold them.
        Raises `ConfigurationError` naming an unknown value.
        """
        known = {item.name: getattr(self, item.name) for item in _FIELDS}
        unknown = sorted(set(changes) - set(known))
        if unknown:
            raise ConfigurationError(
                f"A profile has no value {unknown[0]!r}; known: {', '.join(known)}."
            )
        for name, value in changes.items():
            if isinstance(value, list | set):
                is_tuple = isinstance(known[name], tuple)
                changes[name] = tuple(value) if is_tuple else frozenset(value)
        return dataclasses.replace(self, **changes)


_FIELDS = dataclasses.fields(Profile)
_OLD_LIMIT = {"max_completion_tokens": "max_tokens"}
_NEW_LIMIT = {"max_tokens": "max_completion_tokens"}

#: Sends messages back as they came: for import, export and tests, not for a provider.
LOSSLESS = Profile(
    name="lossless",
    empty_arguments="",
    developer_role=True,
    names=True,
    refusal_parts=True,
    history_reasoning="reasoning_content",
    extra_fields=None,
)

OPENAI = Profile(
    name="openai",
    base_url="https://api.openai.com/v1",
    api_key_env="OPENAI_API_KEY",
    request_id_headers=("X-Client-Request-Id", "Idempotency-Key"),
    renames=_NEW_LIMIT,
    developer_role=True,
    names=True,
    refusal_parts=True,
)

# Any server of this format: the older, widely understood names.
CUSTOM = Profile(
    name="custom",
    renames=_OLD_LIMIT,
    names=True,
    extra_fields=frozenset({"extra_content", "reasoning_details", "cache_control"}),
)

OLLAMA = Profile(
    name="ollama",
    base_url="http://localhost:11434/v1",
    renames=_OLD_LIMIT,
    # Its OpenAI route takes no options of the native one and cuts prompts silently.
    refused=frozenset({"num_ctx", "options", "keep_alive", "logit_bias", "n", "user"}),
    null_content="empty",
    history_reasoning="reasoning",
    reasoning_fields=("reasoning", "reasoning_content"),
)

GROQ = Profile(
    name="groq",
    base_url="https://api.groq.com/openai/v1",
    api_key_env="GROQ_API_KEY",
    renames=_NEW_LIMIT,
    refused=frozenset({"logprobs", "top_logprobs", "logit_bias", "n"}),
    reasoning_fields=("reasoning", "reasoning_content"),
)

NVIDIA = Profile(
    name="nvidia",
    base_url="https://integrate.api.nvidia.com/v1",
    api_key_env="NVIDIA_API_KEY",
    renames=_OLD_LIMIT,
    # Many of its models answer 400 or 422 to any field they do not know.
    parameters=frozenset(
        {
            "model",
            "messages",
            "stream",
            "stream_options",
            "temperature",
            "top_p",
            "max_tokens",
            "stop",
            "seed",
            "frequency_penalty",
            "presence_penalty",
            "tools",
            "tool_choice",
            "response_format",
            "chat_template_kwargs",
            "nvext",
        }
    ),
    null_content="empty",
)

PROFILES: Mapping[str, Profile] = {
    profile.name: profile for profile in (OPENAI, CUSTOM, OLLAMA, GROQ, NVIDIA)
}


def get_profile(provider: str, **changes: Any) -> Profile:
    """Return the profile of ``provider``, with some values changed.

    Raises `ConfigurationError` naming the known providers.
    """
    if provider not in PROFILES:
        raise ConfigurationError(
            f"Unknown provider {provider!r}; known: {', '.join(PROFILES)}. "
            "Use 'custom' with a base_url for another OpenAI-compatible server."
        )
    profile = PROFILES[provider]
    return profile.replace(**changes) if changes else profile
