"""The OpenAI chat-completions dialect: values to wire and back, no input or output.

``encode_request`` makes what to send, ``decode_reply`` and `StreamDecoder` read what
comes back; ``decode_message`` and ``encode_message`` convert single messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from convmem.chat import ChatRequest, ToolSpec
from convmem.dialects.openai_messages import (
    decode_message,
    decode_usage,
    encode_message,
    encode_usage,
)
from convmem.dialects.openai_reply import decode_reply
from convmem.dialects.openai_stream import StreamDecoder
from convmem.dialects.profiles import LOSSLESS, Profile
from convmem.exceptions import BadInput

__all__ = [
    "LOSSLESS",
    "StreamDecoder",
    "decode_message",
    "decode_reply",
    "decode_usage",
    "dropped_parameters",
    "encode_message",
    "encode_request",
    "encode_usage",
]

_EMPTY_SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {}}
_NEVER_OPTIONS = frozenset({"model", "messages", "stream", "extra_body"})
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))


def encode_request(
    request: ChatRequest, profile: Profile, *, stream: bool = False
) -> tuple[str, dict[str, str], dict[str, Any]]:
    """Return the path behind the base URL, the headers (without credentials) and the
    JSON body for one call.

    ``request.options`` are sent under their wire names after the profile's renames;
    its entry ``extra_body`` is merged in as it is, past renames and allow-lists. Named
    fields of the request win over options. Raises `BadInput` without a model.
    """
    if not request.model:
        raise BadInput("ChatRequest.model is empty; name a model.", field="model")
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [encode_message(m, profile) for m in request.messages],
    }
    parameters = _parameters(request, profile)
    if stream:
        body["stream"] = True
        if profile.stream_usage:
            parameters.setdefault("stream_options", {}).setdefault(
                "include_usage", True
            )
    body.update(
        (name, value) for name, value in parameters.items() if _allowed(name, profile)
    )
    body.update(request.options.get("extra_body") or {})
    headers = {
        "Content-Type": "application/json",
        "Accept": "text/event-stream" if stream else "application/json",
        **profile.headers,
    }
    if request.request_id:
        value = quote(request.request_id, safe=_PRINTABLE)
        headers |= dict.fromkeys(profile.request_id_headers, value)
    return profile.path, headers, body


def dropped_parameters(request: ChatRequest, profile: Profile) -> list[str]:
    """Return the wire names of what `encode_request` leaves out for this provider:
    parameters that it refuses, and ``messages[].name`` where it takes no names."""
    dropped = [n for n in _parameters(request, profile) if not _allowed(n, profile)]
    if not profile.names and any(message.name for message in request.messages):
        dropped.append("messages[].name")
    return dropped


def _allowed(name: str, profile: Profile) -> bool:
    if name in profile.refused:
        return False
    return profile.parameters is None or name in profile.parameters


def _parameters(request: ChatRequest, profile: Profile) -> dict[str, Any]:
    """Return all parameters by the provider's names, also those it will not get."""
    options = {k: v for k, v in request.options.items() if k not in _NEVER_OPTIONS}
    if "stream_options" in options:
        options["stream_options"] = dict(options["stream_options"])
    named = {name: value for name, value in _named(request) if value is not None}
    renames = profile.renames
    parameters = {renames.get(name, name): value for name, value in options.items()}
    parameters |= {renames.get(name, name): value for name, value in named.items()}
    return parameters


def _named(request: ChatRequest) -> Iterator[tuple[str, Any]]:
    yield "temperature", request.temperature
    yield "top_p", request.top_p
    yield "max_tokens", request.max_output_tokens
    yield "stop", list(request.stop) or None
    yield "seed", request.seed
    yield "response_format", request.response_format
    if request.tools:
        # Without tools providers refuse the two settings that go with them.
        yield "tools", [encode_tool(tool) for tool in request.tools]
        yield "tool_choice", request.tool_choice
        yield "parallel_tool_calls", request.parallel_tool_calls


def encode_tool(tool: ToolSpec) -> dict[str, Any]:
    """Return the wire form of one tool."""
    function: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters or dict(_EMPTY_SCHEMA),
    }
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}
