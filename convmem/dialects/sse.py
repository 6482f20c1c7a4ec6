"""Server-sent events out of bytes, as they come.

Lines end at CR, LF or CRLF and nowhere else: U+2028, U+2029 and U+0085 may stand
inside a JSON string. All work is done on bytes, so a read may end anywhere, also inside
a character or between CR and LF.
"""

from __future__ import annotations

from typing import NamedTuple

from convmem.exceptions import ProviderBadResponse

MAX_EVENT_BYTES = 32 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
# No line of an event stream begins so; a JSON or HTML body does.
_FOREIGN = b'{["<'


class SseEvent(NamedTuple):
    """One event; ``name`` is empty for the default kind."""

    name: str
    data: str


class SseDecoder:
    """Incremental decoder. A body that is no event stream at all (a plain JSON or HTML
    answer under the wrong content type) is kept whole in ``body`` with ``foreign`` set.

    Raises `ProviderBadResponse` when one event grows over ``max_event_bytes``.
    """

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.foreign = False
        self._max = max_event_bytes
        self._started = False
        self._line: list[bytes] = []  # the pieces of a line that has not ended
        self._held = 0  # bytes in _line and _data
        self._after_cr = False
        self._name = ""
        self._data: list[bytes] = []

    @property
    def body(self) -> bytes:
        """Everything that came, when ``foreign``."""
        return b"".join(self._line) if self.foreign else b""

    @property
    def pending(self) -> str | None:
        """The data of an event whose closing blank line has not come, if any.

        At the end of a stream the standard has such an event discarded.
        """
        lines = list(self._data)
        tail = b"".join(self._line)
        if not self.foreign and tail.startswith(b"data:"):
            lines.append(_value(tail))
        return _text(lines) if lines else None

    def feed(self, data: bytes) -> list[SseEvent]:
        """Take the next bytes; return the events that they completed."""
        if not self._started:
            data = self._start(data)
        self._held += len(data)
        events: list[SseEvent] = []
        if self.foreign:
            self._line.append(data)
        else:
            events = self._split(data)
        if self._held > self._max:
            raise ProviderBadResponse(
                f"One event of the stream is larger than {self._max} bytes."
            )
        return events

    def _start(self, data: bytes) -> bytes:
        """Skip what may stand before the first line; sniff what kind of body it is."""
        data = b"".join(self._line) + data
        self._line, self._held = [], 0
        if _BOM.startswith(data):
            self._line = [data]  # perhaps only the first bytes of the mark
            self._held = len(data)
            return b""
        rest = data.removeprefix(_BOM).lstrip(_SPACE)
        if rest:
            self._started = True
            self.foreign = rest[0] in _FOREIGN
        return rest

    def _split(self, data: bytes) -> list[SseEvent]:
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        events: list[SseEvent] = []
        for line in data.splitlines(keepends=True):
            bare = line.rstrip(b"\r\n")
            if len(bare) == len(line):
                self._line.append(line)
                break
            self._after_cr = line.endswith(b"\r")
            if self._line:
                bare = b"".join(self._line) + bare
                self._line = []
            event = self._take(bare)
            if event is not None:
                events.append(event)
        else:
            # CR at the very end of a read: its LF may be the first byte of the next.
            return events
        self._after_cr = False
        return events

    def _take(self, line: bytes) -> SseEvent | None:
        if not line:
            return self._dispatch()
        if line.startswith(b"data:"):
            self._data.append(_value(line))
        elif line.startswith(b"event:"):
            self._name = _text([_value(line)])
        elif line == b"data":
            self._data.append(b"")
        # Comments, id, retry and unknown fields carry nothing for us.
        return None

    def _dispatch(self) -> SseEvent | None:
        self._held = 0
        name, data = self._name, self._data
        self._name, self._data = "", []
        return SseEvent(name, _text(data)) if data else None


def _value(line: bytes) -> bytes:
    return line.partition(b":")[2].removeprefix(b" ")


def _text(lines: list[bytes]) -> str:
    return b"\n".join(lines).decode("utf-8", "replace")
