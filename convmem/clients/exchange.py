"""One call of a model, all of it that is not input or output.

The sync and the async half share this: what to send, which deadline comes next, what
an answer or a failure means.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx

from convmem.chat import ChatRequest, Completion, Delta
from convmem.clients.deadlines import Deadlines
from convmem.clients.keys import KeySource, scrub
from convmem.dialects.assembly import deltas_of
from convmem.dialects.profiles import Profile
from convmem.exceptions import (
    ProviderBadResponse,
    ProviderError,
    ProviderTimeout,
    ProviderUnreachable,
    StreamIncomplete,
)

logger = logging.getLogger("convmem.clients")

MAX_BODY_BYTES = 64 * 1024 * 1024
# How long to wait for the end of a body whose terminal event has come, so that its
# connection can be used again.
DRAIN_SECONDS = 0.25


class Decoder(Protocol):
    """What a dialect's stream decoder offers."""

    done: bool
    started: bool

    @property
    def failed(self) -> bool: ...

    def feed(self, data: bytes) -> list[Delta]: ...
    def finish(self) -> Completion: ...
    def partial(self) -> Completion: ...


class Dialect(Protocol):
    """What a client needs of a dialect's module."""

    def encode_request(
        self, request: ChatRequest, profile: Profile, *, stream: bool = False
    ) -> tuple[str, dict[str, str], dict[str, Any]]: ...

    def dropped_parameters(
        self, request: ChatRequest, profile: Profile
    ) -> list[str]: ...

    def decode_reply(
        self,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
        profile: Profile = ...,
    ) -> Completion: ...

    def StreamDecoder(  # noqa: N802 - a class of the module
        self, profile: Profile = ..., headers: Mapping[str, str] | None = None
    ) -> Decoder: ...


@dataclass(slots=True)
class Exchange:
    """One attempt: an immutable address, body and key source, and its clock."""

    dialect: Dialect
    profile: Profile
    url: httpx.URL
    headers: dict[str, str]
    content: bytes
    key: KeySource | None
    deadlines: Deadlines
    model: str
    request_id: str | None = None
    dropped: list[str] = field(default_factory=list)
    streaming: bool = False
    begun: bool = False  # the head of the answer has come
    draining: bool = False
    started: float = field(default_factory=time.monotonic)

    def left(self) -> float | None:
        """Return the seconds that the next read may take."""
        return DRAIN_SECONDS if self.draining else self.deadlines.left()

    def http_timeout(self) -> httpx.Timeout:
        """Return the limits for connecting, sending and the head of the answer."""
        left = self.left()
        connect = self.deadlines.timeouts.connect
        limits = [seconds for seconds in (connect, left) if seconds is not None]
        connect = min(limits, default=None)
        return httpx.Timeout(connect=connect, pool=connect, read=left, write=left)

    def answered(self, response: httpx.Response) -> None:
        self.begun = True
        self.deadlines.answering()
        logger.debug(
            "%s %s: answer %d after %.3f s (request %s, upstream %s)",
            self.profile.name,
            self.model,
            response.status_code,
            time.monotonic() - self.started,
            self.request_id,
            response.headers.get("x-request-id"),
        )

    def check_deadline(self) -> None:
        """Raise `ProviderTimeout` when a deadline has passed while data kept coming."""
        if self.deadlines.passed:
            raise self.timed_out()

    def check_size(self, size: int) -> None:
        if size > MAX_BODY_BYTES:
            raise ProviderBadResponse(
                f"{self.profile.name}: the answer is over {MAX_BODY_BYTES} bytes.",
                provider=self.profile.name,
            )

    def reply(self, response: httpx.Response, body: bytes) -> Completion:
        """Return the completion of a whole body, or raise what it means."""
        completion = self.dialect.decode_reply(
            response.status_code, response.headers, body, self.profile
        )
        return self.completed(completion)

    def completed(self, completion: Completion) -> Completion:
        """Log the end of the call and report the parameters that were left out."""
        usage = completion.usage
        logger.debug(
            "%s %s: %s after %.3f s, %s tokens in, %s out (request %s)",
            self.profile.name,
            self.model,
            completion.finish_reason,
            time.monotonic() - self.started,
            usage and usage.input_tokens,
            usage and usage.output_tokens,
            self.request_id,
        )
        if not self.dropped:
            return completion
        extra = {**completion.extra, "dropped_parameters": self.dropped}
        return Completion(
            message=completion.message,
            finish_reason=completion.finish_reason,
            raw_finish_reason=completion.raw_finish_reason,
            usage=completion.usage,
            model=completion.model,
            id=completion.id,
            extra=extra,
        )

    def timed_out(self) -> ProviderTimeout:
        return self._timeout(self.deadlines.next()[1])

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Turn what httpx raises into our errors; take the key out of both."""
        try:
            yield
        except ProviderError as error:
            self._failed(error)
            raise
        except (httpx.HTTPError, OSError) as error:
            ours = self._translated(error)
            self._failed(ours)
            raise ours from error

    def _failed(self, error: ProviderError) -> None:
        scrub(error, self.key)
        error.details.setdefault("provider", self.profile.name)
        error.details.setdefault("model", self.model)
        logger.debug(
            "%s %s: %s after %.3f s (request %s)",
            self.profile.name,
            self.model,
            error.code,
            time.monotonic() - self.started,
            self.request_id,
        )

    def _translated(self, error: Exception) -> ProviderError:
        if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
            return self._timeout("connect")
        if isinstance(error, httpx.TimeoutException | TimeoutError):
            return self.timed_out()
        word = f"{type(error).__name__}: {error}".rstrip(": ")
        if isinstance(error, httpx.DecodingError):
            return ProviderBadResponse(f"{self.profile.name}: broken body ({word}).")
        if self.begun and self.streaming:
            return StreamIncomplete(
                f"{self.profile.name}: the connection broke in the middle of the "
                f"stream ({word}).",
                retryable=True,
                kind="stream_incomplete",
            )
        what = "broke" if self.begun else "failed"
        return ProviderUnreachable(
            f"{self.profile.name}: the connection to {self.url.host} {what} ({word}).",
            retryable=True,
            kind="connection",
        )

    def _timeout(self, phase: str) -> ProviderTimeout:
        limits = self.deadlines.timeouts
        seconds = (
            self.deadlines.total if phase == "total" else getattr(limits, phase, None)
        )
        return ProviderTimeout(
            f"{self.profile.name}: the {phase.replace('_', ' ')} deadline of "
            f"{seconds} s passed.",
            retryable=True,
            phase=phase,
            kind="timeout",
        )


class Answer:
    """The state of a streamed answer, shared by the sync and the async source."""

    def __init__(self, exchange: Exchange, decoder: Decoder) -> None:
        self.exchange = exchange
        self._decoder = decoder
        self._held: deque[Delta] = deque()
        self._had_deltas = False
        self._completion: Completion | None = None
        self._over = False  # no more deltas will be read

    def completion(self) -> Completion:
        """Return the whole completion, or what has come of it so far."""
        return self._completion or self._decoder.partial()

    def _take(self, data: bytes | None) -> None:
        """Take the next bytes of the body, None at its end."""
        if data is None:
            self._finish()
            return
        deltas = self._decoder.feed(data)
        self.exchange.deadlines.heard(event=self._decoder.started)
        self._held.extend(deltas)
        self._had_deltas = self._had_deltas or bool(deltas)
        if self._decoder.done:
            self._finish()
        elif not self._decoder.failed:
            self.exchange.check_deadline()

    def _wants_more(self) -> bool:
        """True when the next piece of the body must be read before a delta can be
        given; raises an error of the stream whose deltas have been given."""
        if self._held or self._over:
            return False
        if self._decoder.failed:
            self._decoder.finish()
        return True

    def _finish(self) -> None:
        """The terminal event or the end of the body has come."""
        completion = self._decoder.finish()
        if not self._had_deltas:
            # A server that does not stream has sent it all in one plain body.
            self._held.extend(deltas_of(completion.message))
        self._completion = self.exchange.completed(completion)
        self._over = True

    def _fail(self, error: ProviderError) -> None:
        self._over = True
        if error.partial is None:
            error.partial = self._decoder.partial()
