"""What a model will see, and what was left out and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from convmem.messages import Message, Value
from convmem.stores.base import Totals

DropReason: TypeAlias = Literal[
    "window",
    "budget",
    "orphan_tool_result",
    "unanswered_tool_call",
    "incomplete_turn",
    "empty",
    "corrupt",
    "expired",
    "superseded",
    "modality",
    "policy",
]


class Dropped(Value, frozen=True):
    """One message that was read and left out. ``index`` is its place in the list that
    was planned, ``position`` its place in the conversation (None when not stored)."""

    message: Message
    index: int
    reason: DropReason
    position: int | None = None


class Unread(Value, frozen=True):
    """The older stretch of a conversation that no policy needed to read.

    ``count`` leaves out system messages inside the stretch that were read.
    """

    count: int
    first_position: int | None = None
    last_position: int | None = None


class PartTokens(Value, frozen=True):
    """Estimated tokens of each part of a view."""

    instructions: int = 0
    history: int = 0
    open_turn: int = 0

    @property
    def total(self) -> int:
        return self.instructions + self.history + self.open_turn


class View(Value, frozen=True):
    """The result of a plan: ``messages`` for the model, and the account of the rest.

    ``over_limit``: the open turn alone (under a budget: with the system messages) is
    more than the window or budget allows and was kept whole. ``repaired``: the list was
    mended so that a provider accepts it.
    """

    messages: tuple[Message, ...]
    dropped: tuple[Dropped, ...] = ()
    unread: Unread | None = None
    tokens: PartTokens = PartTokens()
    over_limit: bool = False
    repaired: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """The names of the flags that are set."""
        return tuple(f for f in ("over_limit", "repaired") if getattr(self, f))


class History(list[Message]):
    """The messages that a policy needs, oldest first, with the conversation's totals.

    Adding messages to it (``history + turn``) keeps the totals.
    """

    def __init__(
        self, messages: Iterable[Message] = (), *, totals: Totals | None = None
    ) -> None:
        super().__init__(messages)
        self.totals = totals

    def __add__(self, other: Sequence[Message]) -> History:  # type: ignore[override]
        return History([*self, *other], totals=self.totals)
