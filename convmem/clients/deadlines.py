"""The four deadlines of a model call."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

from convmem.exceptions import ConfigurationError

Phase: TypeAlias = Literal["connect", "first_event", "idle", "total"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Limits in seconds; None means none.

    ``connect``: to reach the server. ``first_event``: from the call to the first event
    of a stream (keep-alive comments do not count; a reasoning model thinks before it).
    ``idle``: between any two signs of life after that. ``total``: for the whole call.
    An answer that is not streamed has no first event: only ``connect``, ``total`` and,
    once it has begun, ``idle`` bound it.
    """

    connect: float | None = 5.0
    first_event: float | None = 120.0
    idle: float | None = 60.0
    total: float | None = 600.0

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (is_number and value > 0):
                raise ConfigurationError(
                    f"timeout {item.name!r} must be a number of seconds over 0 or "
                    f"None, not {value!r}."
                )

    @classmethod
    def of(cls, value: Timeouts | Mapping[str, Any] | float | None) -> Timeouts:
        """Return timeouts from settings: a number is the total, a mapping names some of
        them (in any case), None means the defaults."""
        if isinstance(value, Timeouts):
            return value
        if value is None:
            return cls()
        if not isinstance(value, Mapping):
            return cls(total=value)
        given = {str(key).lower(): seconds for key, seconds in value.items()}
        known = [item.name for item in fields(cls)]
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise ConfigurationError(
                f"Unknown timeout {unknown[0]!r}; known: {', '.join(known)}."
            )
        return cls(**given)


class Deadlines:
    """The clock of one call: which limit comes next, and how far it is."""

    def __init__(
        self, timeouts: Timeouts, *, total: float | None, streaming: bool
    ) -> None:
        self.timeouts = timeouts
        self.total = timeouts.total if total is None else total
        self._started = self._heard = time.monotonic()
        self._waiting = streaming  # for the first event
        self._answering = False

    def answering(self) -> None:
        """The head of the answer has come."""
        self._answering = True
        self._heard = time.monotonic()

    def heard(self, *, event: bool) -> None:
        """Bytes have come; ``event`` when the stream's first event is among all of
        them."""
        self._heard = time.monotonic()
        if event:
            self._waiting = False

    def next(self) -> tuple[float | None, Phase]:
        """Return the seconds until the next deadline (None: no limit) and its phase."""
        now = time.monotonic()
        limits: list[tuple[float, Phase]] = []
        if self.total is not None:
            limits.append((self._started + self.total - now, "total"))
        first_event, idle = self.timeouts.first_event, self.timeouts.idle
        if self._waiting and first_event is not None:
            limits.append((self._started + first_event - now, "first_event"))
        if self._answering and not self._waiting and idle is not None:
            limits.append((self._heard + idle - now, "idle"))
        return min(limits, default=(None, "total"))

    def left(self) -> float | None:
        """Return the seconds until the next deadline, at least a moment."""
        seconds = self.next()[0]
        return None if seconds is None else max(seconds, 0.001)

    @property
    def passed(self) -> bool:
        seconds = self.next()[0]
        return seconds is not None and seconds <= 0
