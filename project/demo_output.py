"""How the demo prints: titles, chats, tables, promises kept."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from convmem.memory import View
from convmem.messages import Message

STYLES = {"user": "bold cyan", "assistant": "bold green", "tool": "bold yellow"}
WIDTH = 10
#: A model or a file may say escape sequences; a terminal must not obey them.
CONTROLS: dict[int, int | str] = {
    **{code: 0x2400 + code for code in range(0x20) if code != 0x0A},
    **dict.fromkeys((0x7F, *range(0x80, 0xA0)), "�"),
}


class PromiseBroken(Exception):
    """A step of the demo did not show what it promises."""


class Stage:
    """A console with the demo's few ways to write on it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._step = 0

    def title(self, title: str, subtitle: str = "") -> None:
        """Begin the next step."""
        self._step += 1
        heading = Text.assemble(
            (f"\n{self._step}. {title}", "bold"), (f"  {subtitle}", "dim")
        )
        self.console.print(heading)

    def said(self, role: str, text: str) -> None:
        """Print one line of a chat; ``text`` is taken neither for markup nor for
        control codes."""
        shown = Text(text.translate(CONTROLS))
        self._line(Text(role, style=STYLES.get(role, "bold")), shown)

    def note(self, text: str) -> None:
        """Print a remark."""
        self._line(Text(), Text(text, style="dim"))

    def show(self, table: Table) -> None:
        """Print a table."""
        self.console.print(table)

    def promise(self, kept: bool, text: str) -> None:
        """Print what has been shown, or raise `PromiseBroken` if it has not."""
        if not kept:
            self._line(Text("✗", style="bold red"), Text(text, style="bold red"))
            raise PromiseBroken(text)
        self._line(Text("✓", style="green"), Text(text, style="green"))

    def _line(self, margin: Text, text: Text) -> None:
        """Print ``text`` beside the margin; its further lines are indented, too."""
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(justify="right", width=WIDTH)
        grid.add_row(margin, text)
        self.console.print(grid)


def seen_and_left_out(stored: Sequence[Message], view: View) -> Table:
    """Return the stored messages, each with what the view made of it."""
    reasons = {dropped.position: dropped.reason for dropped in view.dropped}
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("#", justify="right", min_width=WIDTH)
    table.add_column("role", no_wrap=True, min_width=9)
    table.add_column("stored message", no_wrap=True, max_width=32)
    table.add_column("seen by the model", no_wrap=True)
    for message in stored:
        reason = reasons.get(message.position)
        shown = Text("yes", style="green") if reason is None else Text(f"no: {reason}")
        table.add_row(
            str(message.position),
            message.role,
            Text(gist(message), overflow="ellipsis"),
            shown,
            style="dim" if reason else "",
        )
    return table


def roles(messages: Sequence[Message]) -> str:
    """Return how many messages of each role there are, for example ``2 user``."""
    names = dict.fromkeys(message.role for message in messages)
    counts = ((sum(m.role == name for m in messages), name) for name in names)
    return ", ".join(f"{count} {name}" for count, name in counts)


def gist(message: Message, most: int = 80) -> str:
    """Return a message on one line of at most ``most`` characters: its text, or the
    tools that it calls."""
    calls = [f"{call.name}({call.arguments})" for call in message.tool_calls]
    text = message.text.strip() or ("calls " + ", ".join(calls) if calls else "")
    line = " ".join(text.split()).translate(CONTROLS) or "(no text)"
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"
