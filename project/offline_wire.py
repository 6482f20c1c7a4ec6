"""OpenAI's chat shapes for the offline model: requests checked, answers written.

As strict as the real service where a mistake in a history would show: an unanswered
tool call or an orphaned tool result is refused.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from project.offline_rules import Call, Reply, reply_to, text_of

MODEL = "offline"
ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


class Refusal(Exception):
    """A request that the endpoint answers with an error object."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = {
            "error": {
                "message": message,
                "type": "invalid_request_error",
                "param": param,
                "code": code,
            }
        }


class Answer:
    """The answer to one checked request, in either of the two wire forms."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        check_request(request)
        self._model = request["model"]
        self._with_usage = bool(
            (request.get("stream_options") or {}).get("include_usage")
        )
        self._digest = hashlib.sha256(
            json.dumps(request["messages"], sort_keys=True).encode()
        ).hexdigest()
        self._created = int(time.time())
        reply = reply_to(
            request["messages"], request.get("tools") or (), request.get("tool_choice")
        )
        self._reply, self._finish = _limited(reply, request)
        self._usage = _usage(request, self._reply)

    def whole(self) -> dict[str, Any]:
        """Return the ``chat.completion`` object."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": self._reply.text or None,
            "refusal": None,
        }
        if self._reply.calls:
            message["tool_calls"] = [
                self._call(index, call) for index, call in enumerate(self._reply.calls)
            ]
        choice = {"index": 0, "message": message, "finish_reason": self._finish}
        return {
            **self._head("chat.completion"),
            "choices": [{**choice, "logprobs": None}],
            "usage": self._usage,
        }

    def pieces(self) -> Iterator[dict[str, Any]]:
        """Yield the ``chat.completion.chunk`` objects of a stream."""
        yield self._chunk({"role": "assistant", "content": ""})
        for word in _pieces(self._reply.text):
            yield self._chunk({"content": word})
        for index, call in enumerate(self._reply.calls):
            first = self._call(index, Call(call.name, ""))
            yield self._chunk({"tool_calls": [{"index": index, **first}]})
            for piece in _pieces(call.arguments):
                part = {"index": index, "function": {"arguments": piece}}
                yield self._chunk({"tool_calls": [part]})
        yield self._chunk({}, finish=self._finish)
        if self._with_usage:
            head = self._head("chat.completion.chunk")
            yield {**head, "choices": [], "usage": self._usage}

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self._digest[:24]}",
            "object": kind,
            "created": self._created,
            "model": self._model,
        }

    def _call(self, index: int, call: Call) -> dict[str, Any]:
        digest = hashlib.sha256(f"{self._digest}:{index}".encode()).hexdigest()
        return {
            "id": f"call_{digest[:24]}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }

    def _chunk(
        self, delta: Mapping[str, Any], finish: str | None = None
    ) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        chunk = {**self._head("chat.completion.chunk"), "choices": [choice]}
        return {**chunk, "usage": None} if self._with_usage else chunk


def tokens(text: str) -> int:
    """Return an estimate: one token per four characters, rounded up."""
    return -(-len(text) // 4)


def _usage(request: Mapping[str, Any], reply: Reply) -> dict[str, int]:
    seen = sum(tokens(text_of(message)) + 4 for message in request["messages"])
    if request.get("tools"):
        seen += tokens(json.dumps(request["tools"]))
    said = tokens(reply.text) + sum(
        tokens(call.name) + tokens(call.arguments) for call in reply.calls
    )
    return {
        "prompt_tokens": seen,
        "completion_tokens": said,
        "total_tokens": seen + said,
    }


def _limited(reply: Reply, request: Mapping[str, Any]) -> tuple[Reply, str]:
    """Apply ``stop`` and the token limit; return the reply and its finish reason."""
    if reply.calls:
        return reply, "tool_calls"
    text, stops = reply.text, request.get("stop") or ()
    for stop in [stops] if isinstance(stops, str) else stops:
        text = text.split(stop, 1)[0]
    most = request.get("max_completion_tokens") or request.get("max_tokens")
    if most and tokens(text) > most:
        return Reply(text=text[: most * 4]), "length"
    return Reply(text=text), "stop"


def _pieces(text: str) -> Iterator[str]:
    """Yield ``text`` word by word, each with the space before it."""
    start = 0
    while start < len(text):
        end = text.find(" ", start + 1)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end


def check_request(request: Any) -> None:
    """Raise `Refusal` unless ``request`` is one that this endpoint can answer."""
    if not isinstance(request, Mapping):
        raise Refusal("The body must be a JSON object.")
    _check_parameters(request)
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refusal("messages must be a non-empty list.", param="messages")
    for index, message in enumerate(messages):
        _check_message(index, message)
    _check_pairs(messages)
    _check_tools(request.get("tools"))
    _check_stop(request.get("stop"))


def _check_parameters(request: Mapping[str, Any]) -> None:
    model = request.get("model")
    if not isinstance(model, str):
        raise Refusal("You must provide a model parameter.", param="model")
    if model != MODEL:
        raise Refusal(
            f"The model {model!r} does not exist; this server has {MODEL!r}.",
            status=404,
            param="model",
            code="model_not_found",
        )
    for name, allowed in (("n", (None, 1)), ("logprobs", (None, False))):
        if request.get(name) not in allowed:
            raise Refusal(
                f"{name} is not supported here.",
                param=name,
                code="unsupported_parameter",
            )


def _check_stop(stop: Any) -> None:
    stops = stop if isinstance(stop, list) else [stop or "."]
    if not all(isinstance(item, str) and item for item in stops):
        raise Refusal("stop must be a text or a list of texts.", param="stop")


def _check_message(index: int, message: Any) -> None:
    place = f"messages.[{index}]"
    if not isinstance(message, Mapping):
        raise Refusal("A message must be an object.", param=place)
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise Refusal(f"Unknown role: {role!r}.", param=f"{place}.role")
    if not isinstance(content, str | list):
        if role != "assistant" or content is not None:
            raise Refusal("content must be text or parts.", param=f"{place}.content")
        if not message.get("tool_calls") and not message.get("function_call"):
            raise Refusal(
                "An assistant message without tool calls needs content.",
                param=f"{place}.content",
            )
    for call in message.get("tool_calls") or ():
        if not isinstance(call, Mapping) or not isinstance(call.get("id"), str):
            raise Refusal("A tool call needs an id.", param=f"{place}.tool_calls")


def _check_tools(tools: Any) -> None:
    if not isinstance(tools, list | None):
        raise Refusal("tools must be a list.", param="tools")
    for index, tool in enumerate(tools or ()):
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(
            function.get("name"), str
        ):
            raise Refusal("A tool needs a function.name.", param=f"tools.[{index}]")


def _check_pairs(messages: Sequence[Mapping[str, Any]]) -> None:
    """Hold OpenAI's rule: results follow their calls, and each call has one."""
    open_calls: set[str] = set()
    for index, message in enumerate(messages):
        param = f"messages.[{index}].role"
        if message["role"] == "tool":
            if message.get("tool_call_id") not in open_calls:
                raise Refusal(
                    "messages with role 'tool' must be a response to a preceding "
                    "message with 'tool_calls'.",
                    param=param,
                )
            open_calls.discard(message["tool_call_id"])
            continue
        _check_answered(open_calls, param)
        open_calls = {call["id"] for call in message.get("tool_calls") or ()}
    _check_answered(open_calls, "messages")


def _check_answered(open_calls: set[str], param: str) -> None:
    if open_calls:
        raise Refusal(
            "An assistant message with 'tool_calls' must be followed by tool messages "
            f"responding to each 'tool_call_id'; missing: {', '.join(open_calls)}.",
            param=param,
        )
