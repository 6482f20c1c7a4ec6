"""A window by tokens, and what a provider's settings mean as windows."""

from __future__ import annotations

from collections.abc import Sequence

from convmem.exceptions import InvalidWindow
from convmem.memory.turns import is_reasoning_only
from convmem.memory.view import DropReason
from convmem.memory.windows import (
    CHUNK,
    MessageWindow,
    SuffixWindow,
    SystemPolicy,
    Window,
    check_limit,
)
from convmem.messages import SYSTEM_ROLES, Message
from convmem.tokens import Counter, estimate

#: Tokens of a message that is shorter than most.
SHORT_MESSAGE = 44


class TokenWindow(SuffixWindow):
    """The newest messages that fit ``max_tokens``, system messages included.

    Keeps an unbroken suffix: going back from the newest, it stops at the first group
    that does not fit, even if an older one would. A tool call and its results are one
    group, a reasoning block and what it led to as well; any other message is a group of
    its own. ``counter`` gives the tokens of one message (default: the estimate of
    `convmem.tokens`).
    """

    reason: DropReason = "budget"

    def __init__(
        self,
        max_tokens: int,
        counter: Counter | None = None,
        *,
        system: SystemPolicy = "all",
        start_on_user: bool = False,
    ) -> None:
        super().__init__(system=system, start_on_user=start_on_user)
        self.max_tokens = check_limit(max_tokens, "A token budget")
        self.counter: Counter = counter or estimate
        # A message of a chat has seldom fewer tokens; a second read is dearer.
        self.first_read = min(CHUNK, max_tokens // SHORT_MESSAGE + 1)

    def _cut(
        self,
        messages: Sequence[Message],
        system: Sequence[int],
        others: Sequence[int],
        opened: int,
    ) -> tuple[int, bool]:
        count = self.counter
        left = self.max_tokens
        for index in (*system, *others[opened:]):
            left -= count(messages[index])
        if left < 0:
            return opened, True
        cut = opened
        for place in range(opened - 1, -1, -1):
            message = messages[others[place]]
            left -= count(message)
            if left < 0:
                break
            if message.role == "tool":
                continue  # its group begins further back
            if message.role == "assistant" and place:
                before = messages[others[place - 1]]
                if not isinstance(before.content, str) and is_reasoning_only(before):
                    continue
            cut = place
        else:
            cut = 0
        return cut, False

    def enough(self, messages: Sequence[Message]) -> bool:
        count, left = self.counter, self.max_tokens
        if self.system == "latest":
            messages = _with_latest_system(messages)
        for message in reversed(messages):
            left -= count(message)
            if left < 0:
                return True
        return False


def _with_latest_system(messages: Sequence[Message]) -> Sequence[Message]:
    system = [m for m in messages if m.role in SYSTEM_ROLES]
    others = [m for m in messages if m.role not in SYSTEM_ROLES]
    return [*system[-1:], *others]


def windows_of(window: object, max_tokens: int | None) -> tuple[Window, ...]:
    """Return the windows that a provider's settings mean, in the order they apply.

    ``window`` is a number of messages, a `Window` or None. Raises `InvalidWindow`.
    """
    chosen: list[Window] = []
    if isinstance(window, Window):
        chosen.append(window)
    elif isinstance(window, int) and not isinstance(window, bool):
        chosen.append(MessageWindow(window))
    elif window is not None:
        raise InvalidWindow(
            f"window must be a number of messages, a Window or None, not {window!r}.",
            value=repr(window),
        )
    if max_tokens is not None:
        chosen.append(TokenWindow(max_tokens))
    return tuple(chosen)
