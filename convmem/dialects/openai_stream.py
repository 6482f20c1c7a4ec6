"""A streamed answer of the OpenAI chat format: bytes in, deltas out, then the whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from convmem.chat import Completion, Delta, ReasoningDelta, RefusalDelta, TextDelta
from convmem.dialects.assembly import Assembly
from convmem.dialects.errors import build_error, read_error
from convmem.dialects.openai_messages import (
    LEGACY_CALL,
    WIRE,
    decode_usage,
    legacy_id,
)
from convmem.dialects.openai_reply import (
    bad_response,
    choice_extra,
    decode_reply,
    extra_of,
    finish_reason,
    seed_of,
)
from convmem.dialects.profiles import CUSTOM, Profile
from convmem.dialects.sse import SseDecoder, SseEvent
from convmem.dialects.toolcalls import CallTracker
from convmem.dialects.wirejson import dict_of, int_of, list_of, loads, text_of
from convmem.exceptions import ProviderError, StreamIncomplete

DONE = "[DONE]"
_KNOWN = frozenset(
    {
        "role",
        "content",
        "refusal",
        "tool_calls",
        LEGACY_CALL,
        "reasoning_content",
        "reasoning",
        "channel",
    }
)


class StreamDecoder:
    """State machine of one streamed answer.

    ``feed`` takes bytes cut anywhere and returns the deltas that they completed. An
    error object in the stream is raised after the deltas before it were handed out.
    ``done`` turns True at the terminal event; what follows is ignored. ``started`` is
    True once any event has come, ``failed`` once an error has: `finish` raises it at
    once. Otherwise `finish` says that the body has ended.

    Every error is a `ProviderError` with ``partial`` set to what had come.
    """

    def __init__(
        self, profile: Profile = CUSTOM, headers: Mapping[str, str] | None = None
    ) -> None:
        self.done = False
        self.started = False
        self._profile = profile
        self._headers = {k.lower(): v for k, v in (headers or {}).items()}
        self._sse = SseDecoder()
        self._choices: dict[int, _Choice] = {}
        self._assembly = Assembly()
        self._error: ProviderError | None = None
        self._result: Completion | None = None

    @property
    def failed(self) -> bool:
        return self._error is not None

    def feed(self, data: bytes) -> list[Delta]:
        """Take the next bytes. Raises `ProviderError`."""
        if self._error is not None:
            raise self._error
        deltas: list[Delta] = []
        try:
            for event in self._sse.feed(data):
                if self.done:
                    break
                self.started = True
                deltas += self._take(event)
        except ProviderError as error:
            self._error = error
            error.partial = self.partial()
            if not deltas:
                raise
        return deltas

    def finish(self) -> Completion:
        """Say that the body has ended; return the completion.

        Raises `StreamIncomplete` when the terminal event has not come.
        """
        if self._error is not None:
            raise self._error
        if self._result is None:
            try:
                self._result = self._end()
            except ProviderError as error:
                self._error = error
                if error.partial is None:
                    error.partial = self.partial()
                raise
        return self._result

    def partial(self) -> Completion:
        """Return what has come so far; after `finish` the whole completion."""
        return self._result or self._assembly.completion()

    def _end(self) -> Completion:
        if self._sse.foreign:
            body = self._sse.body
            return decode_reply(200, self._headers, body, self._profile)
        if not self.done:
            self._end_without_terminal()
        if not self._choices:
            raise self._bad("the stream ended without any choice")
        raw = self._assembly.raw_finish_reason
        reason = finish_reason(raw, has_calls=bool(self._assembly.calls))
        others = [choice.wire() for choice in list(self._choices.values())[1:]]
        if others:
            self._assembly.extra["choices"] = others
        return self._assembly.completion(reason, whole=True)

    def _end_without_terminal(self) -> None:
        """Accept what may stand for the terminal event, else raise."""
        pending = self._sse.pending
        if pending is not None and pending.startswith(DONE):
            return
        if pending is not None and '"error"' in pending:
            # The sender hung up in the middle of its last word; it may still be read.
            self._take(SseEvent("", pending))
        finished = self._assembly.raw_finish_reason is not None
        if finished and self._profile.terminal == "finish_reason":
            return
        hint = " (set the profile's terminal='finish_reason' if it never sends [DONE])"
        raise StreamIncomplete(
            f"{self._profile.name}: the stream ended before its terminal event"
            f"{hint if finished else ''}.",
            retryable=True,
            provider=self._profile.name,
            kind="stream_incomplete",
        )

    def _take(self, event: SseEvent) -> list[Delta]:
        if event.data.startswith(DONE):
            self.done = True
            return []
        chunk = self._parsed(event)
        self._note(chunk)
        if chunk.get("error") or event.name == "error":
            raise self._failure(chunk)
        deltas: list[Delta] = []
        for choice in list_of(chunk.get("choices")):
            if isinstance(choice, dict):
                deltas += self._take_choice(choice, seed_of(chunk))
        return deltas

    def _parsed(self, event: SseEvent) -> dict[str, Any]:
        try:
            chunk = loads(event.data)
        except ValueError:
            chunk = None
        if isinstance(chunk, dict):
            return chunk
        if event.name == "error":
            return {"error": chunk if isinstance(chunk, str) else event.data}
        raise self._bad(f"an event is no JSON object: {event.data[:80]!r}")

    def _note(self, chunk: dict[str, Any]) -> None:
        """Take the facts beside the choices; usage may come on any chunk, also one
        without choices or with an error. The last non-null value counts."""
        usage = decode_usage(chunk.get("usage"))
        usage = usage or decode_usage(dict_of(chunk.get("x_groq")).get("usage"))
        found = self._assembly
        found.usage = usage or found.usage
        found.id = found.id or text_of(chunk.get("id"))
        found.model = text_of(chunk.get("model")) or found.model
        found.extra.update(extra_of(chunk))

    def _take_choice(self, wire: dict[str, Any], seed: str) -> list[Delta]:
        if wire.get("error"):
            raise self._failure(wire)
        index = int_of(wire.get("index")) or 0
        choice = self._choices.get(index)
        if choice is None:
            is_main = not self._choices
            assembly = self._assembly if is_main else Assembly()
            choice = _Choice(index, assembly, self._profile, seed if is_main else "")
            self._choices[index] = choice
        deltas = choice.take(wire)
        return deltas if choice.assembly is self._assembly else []

    def _failure(self, wire: dict[str, Any]) -> ProviderError:
        facts = read_error(wire)
        return build_error(facts, None, self._headers, provider=self._profile.name)

    def _bad(self, reason: str) -> ProviderError:
        return bad_response(self._profile, reason, self._headers)


class _Choice:
    """One of the parallel answers; only the first gives deltas to the caller."""

    def __init__(
        self, index: int, assembly: Assembly, profile: Profile, seed: str
    ) -> None:
        self.index = index
        self.assembly = assembly
        self._fields = profile.reasoning_fields
        self._seed = seed or str(index)
        self._tracker = CallTracker(assembly)

    def take(self, wire: dict[str, Any]) -> list[Delta]:
        delta = dict_of(wire.get("delta")) or dict_of(wire.get("message"))
        deltas = [*self._texts(delta), *self._calls(delta)]
        reason = text_of(wire.get("finish_reason"))
        self.assembly.raw_finish_reason = reason or self.assembly.raw_finish_reason
        _merge(self.assembly.extra, choice_extra(wire))
        rest = {k: v for k, v in delta.items() if k not in _KNOWN and v is not None}
        if rest:
            _merge(self.assembly.metadata.setdefault(WIRE, {}), rest)
        return deltas

    def _texts(self, delta: dict[str, Any]) -> Iterator[Delta]:
        for name in self._fields:
            text = delta.get(name)
            if isinstance(text, str) and text:
                self.assembly.reasoning_extra = {"field": name}
                yield from self._add(ReasoningDelta(text=text))
                break
        text = _content_text(delta.get("content"))
        if text:
            yield from self._add(TextDelta(text=text))
        refusal = text_of(delta.get("refusal"))
        if refusal:
            yield from self._add(RefusalDelta(text=refusal))

    def _calls(self, delta: dict[str, Any]) -> Iterator[Delta]:
        pieces = list_of(delta.get("tool_calls"))
        if isinstance(delta.get(LEGACY_CALL), dict):
            pieces = [*pieces, _legacy_piece(delta[LEGACY_CALL])]
        for piece in pieces:
            if isinstance(piece, dict):
                yield from self._add(self._tracker.take(piece, self._seed))

    def _add(self, delta: Delta) -> Iterator[Delta]:
        self.assembly.add(delta)
        yield delta

    def wire(self) -> dict[str, Any]:
        """Return an answer beside the first one, in the shape of a whole reply."""
        message = self.assembly.completion().message
        calls = [
            {
                "id": call.id,
                "type": call.kind,
                call.kind: {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
        wire: dict[str, Any] = {"role": "assistant", "content": message.text or None}
        if calls:
            wire["tool_calls"] = calls
        reason = self.assembly.raw_finish_reason
        return {"index": self.index, "message": wire, "finish_reason": reason}


def _legacy_piece(call: dict[str, Any]) -> dict[str, Any]:
    name = text_of(call.get("name"))
    call_id = legacy_id(name) if name else None
    return {"index": 0, "id": call_id, "type": LEGACY_CALL, LEGACY_CALL: call}


def _content_text(content: object) -> str:
    """Return the text of a content delta; some servers send a list of parts."""
    if isinstance(content, list):
        return "".join(text_of(dict_of(part).get("text")) for part in content)
    return text_of(content)


def _merge(target: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Join what comes in pieces: lists grow, objects merge, other values replace."""
    for key, value in more.items():
        known = target.get(key)
        if isinstance(known, list) and isinstance(value, list):
            known.extend(value)
        elif isinstance(known, dict) and isinstance(value, dict):
            merged = dict(known)
            _merge(merged, value)
            target[key] = merged
        else:
            target[key] = value
