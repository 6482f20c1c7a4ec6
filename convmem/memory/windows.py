"""Windows: which messages of a history stay, decided without any I/O.

Three rules hold for every window. System and developer messages stay, at the head, in
order. The open turn is never cut: when it alone is over the limit it stays whole and
the choice says so. A tool result at the head of the kept stretch, whose call was cut
off, goes too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, TypeAlias, get_args

from convmem.exceptions import InvalidWindow
from convmem.memory.turns import open_turn
from convmem.memory.view import DropReason
from convmem.messages import SYSTEM_ROLES, Message, Value

SystemPolicy: TypeAlias = Literal["all", "latest"]

#: Messages of the first read of a window that cannot say how many it needs.
CHUNK = 64


class Choice(Value, frozen=True):
    """What a window decided, by index in the list it was given.

    ``kept`` is in the order of the view; ``dropped`` has a reason for each other
    message. ``over_limit``: what is always kept is more than the limit allows.
    """

    kept: tuple[int, ...]
    dropped: dict[int, DropReason]
    over_limit: bool = False


class Window(ABC):
    """Decides which messages stay. Write `choose`; it must be pure.

    Instances hold settings and no state, so one may serve any number of
    conversations and threads.
    """

    #: How many of the newest messages (system messages come besides) to read first;
    #: None reads everything.
    first_read: int | None = None

    @abstractmethod
    def choose(self, messages: Sequence[Message], open_from: int) -> Choice:
        """Return what stays of ``messages``, oldest first; the open turn begins at
        ``open_from`` (``len(messages)`` when none is open)."""

    def enough(self, messages: Sequence[Message]) -> bool:
        """Return whether older messages cannot change the choice.

        ``messages`` are all system messages and the newest others. Only asked when
        ``first_read`` is set.
        """
        return False


class SuffixWindow(Window):
    """A window that keeps the newest messages from some place on."""

    reason: DropReason = "window"

    def __init__(
        self, *, system: SystemPolicy = "all", start_on_user: bool = False
    ) -> None:
        if system not in get_args(SystemPolicy):
            raise InvalidWindow(
                f"system must be 'all' or 'latest', not {system!r}.", value=system
            )
        self.system = system
        self.start_on_user = start_on_user

    def choose(self, messages: Sequence[Message], open_from: int) -> Choice:
        system, others = _split(messages)
        opened = bisect_left(others, open_from)
        dropped: dict[int, DropReason] = {}
        if self.system == "latest":
            dropped.update(dict.fromkeys(system[:-1], "policy"))
            system = system[-1:]
        cut, over_limit = self._cut(messages, system, others, opened)
        dropped.update(dict.fromkeys(others[:cut], self.reason))
        while cut < opened and messages[others[cut]].role == "tool":
            dropped[others[cut]] = "orphan_tool_result"
            cut += 1
        if self.start_on_user:
            while cut < opened and messages[others[cut]].role != "user":
                dropped[others[cut]] = self.reason
                cut += 1
        return Choice(
            kept=(*system, *others[cut:]), dropped=dropped, over_limit=over_limit
        )

    @abstractmethod
    def _cut(
        self,
        messages: Sequence[Message],
        system: Sequence[int],
        others: Sequence[int],
        opened: int,
    ) -> tuple[int, bool]:
        """Return the place in ``others`` (indices of non-system messages) where the
        kept stretch begins, at most ``opened``, and whether the open turn, which
        begins there, is over the limit (with the system messages, if they count)."""


class MessageWindow(SuffixWindow):
    """The newest ``n`` messages, system messages not counted.

    ``system="latest"`` keeps only the last system or developer message.
    ``start_on_user`` moves the beginning on to a user message, for providers that
    want one first.
    """

    def __init__(
        self, n: int, *, system: SystemPolicy = "all", start_on_user: bool = False
    ) -> None:
        super().__init__(system=system, start_on_user=start_on_user)
        self.n = self.first_read = check_limit(n, "A message window")

    def _cut(
        self,
        messages: Sequence[Message],
        system: Sequence[int],
        others: Sequence[int],
        opened: int,
    ) -> tuple[int, bool]:
        place = max(len(others) - self.n, 0)
        return min(place, opened), place > opened

    def enough(self, messages: Sequence[Message]) -> bool:
        return sum(m.role not in SYSTEM_ROLES for m in messages) >= self.n


class TurnWindow(SuffixWindow):
    """The newest ``n`` turns whole, of however many messages; an open turn is one."""

    first_read = CHUNK

    def __init__(self, n: int, *, system: SystemPolicy = "all") -> None:
        super().__init__(system=system)
        self.n = check_limit(n, "A turn window")

    def _cut(
        self,
        messages: Sequence[Message],
        system: Sequence[int],
        others: Sequence[int],
        opened: int,
    ) -> tuple[int, bool]:
        is_open = opened < len(others)
        wanted = self.n - is_open
        if wanted <= 0:
            return opened, wanted < 0
        for place in range(opened - 1, -1, -1):
            if messages[others[place]].role == "user":
                wanted -= 1
                if not wanted:
                    return place, False
        return 0, False

    def enough(self, messages: Sequence[Message]) -> bool:
        # An open turn may begin with several questions, so neighbours count once.
        asked = [m.role == "user" for m in messages if m.role not in SYSTEM_ROLES]
        return sum(now and not before for before, now in pairwise([False, *asked])) >= (
            self.n
        )


def deciding(windows: Sequence[Window]) -> Sequence[Window]:
    """Return the windows any one of which may say that enough was read.

    Of suffixes the shortest counts. Else only the first window sees what was read: the
    others see what it leaves.
    """
    suffixes = [w for w in windows if isinstance(w, SuffixWindow)]
    alike = len({w.system for w in suffixes}) == 1
    return windows if alike and len(suffixes) == len(windows) else windows[:1]


def safe_window(messages: Sequence[Message], n: int) -> list[Message]:
    """Return the newest ``n`` non-system messages of ``messages``, safe to send.

    System and developer messages come first, in order; leading tool results whose
    call was cut off are dropped; the open turn (from the last user message on, unless
    it has its final answer) is never cut, even when it is longer than ``n``. Raises
    `InvalidWindow` for a negative ``n`` or one that is no integer.
    """
    choice = MessageWindow(n).choose(messages, open_turn(messages))
    return [messages[index] for index in choice.kept]


def check_limit(value: object, what: str) -> int:
    """Return ``value`` if it is an integer of at least 0, else raise
    `InvalidWindow`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidWindow(
            f"{what} needs a whole number, not {value!r}.", value=repr(value)
        )
    if value < 0:
        raise InvalidWindow(
            f"{what} cannot be negative: {value}. Use 0 for system messages and the "
            "open turn only, or None for no limit.",
            value=value,
        )
    return value


def _split(messages: Sequence[Message]) -> tuple[list[int], list[int]]:
    system: list[int] = []
    others: list[int] = []
    for index, message in enumerate(messages):
        (system if message.role in SYSTEM_ROLES else others).append(index)
    return system, others
