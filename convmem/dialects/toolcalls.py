"""Streamed tool calls, put together whatever way a server cuts and labels them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convmem.chat import ToolCallDelta
from convmem.dialects.assembly import Assembly, CallPieces
from convmem.dialects.openai_messages import arguments_text, made_id
from convmem.dialects.wirejson import dict_of, int_of, loads, text_of


class CallTracker:
    """Finds for each wire piece the call it belongs to.

    Our own indexes are 0, 1, 2... in order of appearance. A wire piece is matched by
    its ``index``; a piece without one belongs to the latest call. It begins a new call
    when its index is new, when it has another non-empty id than its call, or when it
    names a function again after its call is complete or under another name. An empty
    id or name is as good as none. A call without an id gets a made one, and keeps it.
    """

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._by_index: dict[int, int] = {}
        self._by_id: dict[str, int] = {}
        self._latest: int | None = None

    def take(self, piece: Mapping[str, Any], seed: str) -> ToolCallDelta:
        """Return the delta of one entry of a wire ``tool_calls`` list.

        The caller adds it to the assembly.
        """
        kind = text_of(piece.get("type")) or "function"
        inner = dict_of(piece.get(kind))
        given = piece.get("id")
        call_id = str(given) if isinstance(given, str | int) else ""
        name = text_of(inner.get("name"))
        arguments = arguments_text(inner.get("arguments", inner.get("input")))
        index = int_of(piece.get("index"))
        place = self._place(index, call_id, name, arguments)
        self._latest = place
        if index is not None:
            self._by_index[index] = place
        if call_id:
            self._by_id.setdefault(call_id, place)
        pieces = self._assembly.calls.get(place)
        if pieces is None:
            self._begin(place, kind, piece)
            call_id = call_id or made_id(seed, place)
            return ToolCallDelta(
                index=place, id=call_id, name=name or None, arguments=arguments
            )
        first_name = name if name and not pieces.name else None
        return ToolCallDelta(index=place, name=first_name, arguments=arguments)

    def _begin(self, place: int, kind: str, piece: Mapping[str, Any]) -> None:
        known = ("index", "id", "type", kind)
        extra = {key: item for key, item in piece.items() if key not in known}
        self._assembly.calls[place] = CallPieces(kind=kind, extra=extra)

    def _place(self, index: int | None, call_id: str, name: str, arguments: str) -> int:
        new = len(self._assembly.calls)
        current = self._latest if index is None else self._by_index.get(index)
        if current is None:
            return new
        pieces = self._assembly.calls[current]
        if call_id and call_id == pieces.id:
            return current
        if call_id and (index is None or pieces.id in self._by_id):
            return self._by_id.get(call_id, new)
        return new if name and _is_another(pieces, name, arguments) else current


def _is_another(pieces: CallPieces, name: str, arguments: str) -> bool:
    if not pieces.name:
        return False
    return name != pieces.name or (bool(arguments) and _is_complete(pieces))


def _is_complete(pieces: CallPieces) -> bool:
    try:
        return isinstance(loads("".join(pieces.arguments)), dict)
    except ValueError:
        return False
