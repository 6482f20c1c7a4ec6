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
        """Print one line of a chat; ``text`` is never taken for markup."""
        name = Text(role.rjust(WIDTH), style=STYLES.get(role, "bold"))
        table = Table.grid(padding=(0, 2))
        table.add_row(name, Text(text))
        self.console.print(table)

    def note(self, text: str) -> None:
        """Print a remark."""
        self.console.print(Text(" " * (WIDTH + 2) + text, style="dim"))

    def show(self, table: Table) -> None:
        """Print a table."""
        self.console.print(table)

    def promise(self, kept: bool, text: str) -> None:
        """Print what has been shown, or raise `PromiseBroken` if it has not."""
        if not kept:
            self.console.print(Text(f"{'✗'.rjust(WIDTH)}  {text}", style="bold red"))
            raise PromiseBroken(text)
        self.console.print(Text(f"{'✓'.rjust(WIDTH)}  {text}", style="green"))


def seen_and_left_out(stored: Sequence[Message], view: View) -> Table:
    """Return the stored messages, each with what the view made of it."""
    reasons = {dropped.position: dropped.reason for dropped in view.dropped}
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("#", justify="right", min_width=WIDTH)
    table.add_column("role")
    table.add_column("stored message", no_wrap=True, max_width=46)
    table.add_column("the model sees it")
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


def gist(message: Message) -> str:
    """Return a message on one line: its text, or the tools that it calls."""
    if message.text.strip():
        return " ".join(message.text.split())
    calls = (f"{call.name}({call.arguments})" for call in message.tool_calls)
    return "calls " + ", ".join(calls) if message.tool_calls else "(no text)"
