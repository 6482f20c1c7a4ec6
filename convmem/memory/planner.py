"""From the messages that were read to what the model sees. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from convmem.memory.repair import repair
from convmem.memory.turns import open_turn, turn_start
from convmem.memory.view import (
    Dropped,
    DropReason,
    History,
    PartTokens,
    Unread,
    View,
)
from convmem.memory.windows import Window
from convmem.messages import SYSTEM_ROLES, Message
from convmem.stores.base import Totals
from convmem.tokens import Counter, count_messages


def live(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages that are neither superseded nor corrupt."""
    if _all_live(messages):
        return messages
    replaced = _replaced(messages)
    return [m for m in messages if _gone_for(m, replaced) is None]


def draft(
    messages: Sequence[Message],
    *,
    open_from: int | None = None,
    windows: Sequence[Window] = (),
    mend: bool = True,
    keep_failed: bool = False,
) -> Draft:
    """Decide what the model sees of ``messages``; see `MemoryProvider.plan`."""
    work = Draft(list(messages), list(range(len(messages))))
    if mend:
        work.drop_dead()
    if open_from is None:
        work.open_from = open_turn(work.messages)
    else:
        work.locate(open_from)
    for window in windows:
        work.apply(window)
    if mend and work.mend(keep_failed=keep_failed):
        # An added result may be one message, or one token, too many.
        for window in windows:
            work.apply(window)
    return work


@dataclass(slots=True)
class Draft:
    """A view in the making: ``messages`` and, for each, its index in the list that was
    given (``origins``; None for an added one)."""

    messages: list[Message]
    origins: list[int | None]
    open_from: int = 0
    dropped: dict[int, DropReason] = field(default_factory=dict)
    over_limit: bool = False
    repaired: bool = False

    def drop_dead(self) -> None:
        """Leave out superseded and corrupt messages."""
        if _all_live(self.messages):
            return
        replaced = _replaced(self.messages)
        reasons = [_gone_for(message, replaced) for message in self.messages]
        self.dropped.update(
            (index, reason) for index, reason in enumerate(reasons) if reason
        )
        self._keep([i for i, reason in enumerate(reasons) if not reason])

    def locate(self, open_from: int) -> None:
        """Set the open turn's start from an index in the list that was given, moved
        back to the start of its turn."""
        place = sum(1 for o in self.origins if o is not None and o < open_from)
        self.open_from = turn_start(self.messages, place)

    def apply(self, window: Window) -> None:
        """Leave out what ``window`` does not choose."""
        choice = window.choose(self.messages, self.open_from)
        for index, reason in choice.dropped.items():
            origin = self.origins[index]
            if origin is not None:
                self.dropped[origin] = reason
        self.over_limit = self.over_limit or choice.over_limit
        # System messages move to the head; the open turn stays at the end.
        place = len(choice.kept)
        while place and choice.kept[place - 1] >= self.open_from:
            place -= 1
        self._keep(choice.kept)
        self.open_from = place

    def mend(self, *, keep_failed: bool) -> bool:
        """Repair the messages; return whether anything was added to them."""
        result = repair(
            self.messages, open_from=self.open_from, keep_failed=keep_failed
        )
        if not (result.mended or result.dropped):
            return False
        for index, reason in result.dropped.items():
            origin = self.origins[index]
            if origin is not None:
                self.dropped[origin] = reason
        opened = self.open_from
        self.open_from = next(
            (
                place
                for place, index in enumerate(result.origins)
                if index is not None and index >= opened
            ),
            len(result.messages),
        )
        self.origins = [
            None if index is None else self.origins[index] for index in result.origins
        ]
        self.messages = result.messages
        self.repaired = self.repaired or result.mended
        return result.grown

    def view(self, source: Sequence[Message], counter: Counter | None = None) -> View:
        """Return the account of this draft of ``source``."""
        return View(
            messages=tuple(self.messages),
            dropped=tuple(
                _dropped(source, index, reason)
                for index, reason in sorted(self.dropped.items())
            ),
            unread=unread_of(source),
            tokens=self._tokens(counter),
            over_limit=self.over_limit,
            repaired=self.repaired,
        )

    def _keep(self, indices: Sequence[int]) -> None:
        self.messages = [self.messages[index] for index in indices]
        self.origins = [self.origins[index] for index in indices]

    def _tokens(self, counter: Counter | None) -> PartTokens:
        system, history, opened = [], [], []
        for place, message in enumerate(self.messages):
            if message.role in SYSTEM_ROLES:
                system.append(message)
            elif place < self.open_from:
                history.append(message)
            else:
                opened.append(message)
        return PartTokens(
            instructions=count_messages(system, counter),
            history=count_messages(history, counter),
            open_turn=count_messages(opened, counter),
        )


def compared(
    messages: Sequence[Message], shown: Sequence[Message], open_from: int | None
) -> View:
    """Return the account of a view that somebody else made: ``shown`` beside the
    ``messages`` it was made from. Nothing is known of reasons: all are ``policy``."""
    start = open_turn(messages) if open_from is None else open_from
    opened = {id(message) for message in messages[start:]}
    others = [m for m in shown if m.role not in SYSTEM_ROLES]
    return View(
        messages=tuple(shown),
        dropped=tuple(
            _dropped(messages, index, "policy") for index in _missing(messages, shown)
        ),
        unread=unread_of(messages),
        tokens=PartTokens(
            instructions=count_messages(m for m in shown if m.role in SYSTEM_ROLES),
            history=count_messages(m for m in others if id(m) not in opened),
            open_turn=count_messages(m for m in others if id(m) in opened),
        ),
    )


def unread_of(messages: Sequence[Message]) -> Unread | None:
    """Return the stretch of the conversation that a `History` did not read, or None
    when everything was read (or nothing is known: a plain list)."""
    totals = messages.totals if isinstance(messages, History) else None
    if totals is None or totals.last_position is None:
        return None
    read = {
        m.position
        for m in messages
        if m.position is not None and m.position <= totals.last_position
    }
    count = totals.count - len(read)
    if count <= 0:
        return None
    first, last = _bounds(messages, totals, read)
    return Unread(count=count, first_position=first, last_position=last)


def _dropped(source: Sequence[Message], index: int, reason: DropReason) -> Dropped:
    message = source[index]
    return Dropped(
        message=message, index=index, reason=reason, position=message.position
    )


def _missing(messages: Sequence[Message], shown: Sequence[Message]) -> list[int]:
    """Return the indices of ``messages`` that are not shown: neither the same object,
    nor one of the same position, nor (when not stored) an equal one."""
    present = {id(message) for message in shown}
    given = {id(message) for message in messages}
    copies = [message for message in shown if id(message) not in given]
    positions = {message.position for message in copies} - {None}
    new: dict[str, list[Message]] = {}
    for message in copies:
        if message.position is None:
            new.setdefault(message.text, []).append(message)
    return [
        index
        for index, message in enumerate(messages)
        if id(message) not in present
        and message.position not in positions
        and message.replace(position=None) not in new.get(message.text, ())
    ]


def _bounds(
    messages: Sequence[Message], totals: Totals, read: set[int]
) -> tuple[int | None, int | None]:
    first, last = totals.first_position, totals.last_position
    oldest = min(
        (
            m.position
            for m in messages
            if m.position in read and m.role not in SYSTEM_ROLES
        ),
        default=None,
    )
    if oldest is not None:
        last = oldest - 1
    while first is not None and first in read:
        first += 1
    while last is not None and last in read:
        last -= 1
    return first, last


def _all_live(messages: Sequence[Message]) -> bool:
    """Return whether nothing is superseded or corrupt: the usual case, found fast."""
    for message in messages:
        if message.supersedes or message.status == "corrupt":
            return False
    return True


def _replaced(messages: Sequence[Message]) -> set[int]:
    return {
        position
        for message in messages
        if message.supersedes
        for position in message.supersedes
    }


def _gone_for(message: Message, replaced: set[int]) -> DropReason | None:
    if message.status == "corrupt":
        return "corrupt"
    if replaced and message.position in replaced:
        return "superseded"
    return None
