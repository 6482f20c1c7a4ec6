"""A turn beside a memory provider: load once, show views, append at the end."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import count

from convmem.chat import Completion
from convmem.exceptions import BadInput, IdempotencyConflict, TurnNotSaved
from convmem.kernel.context import Context, reply_of
from convmem.kernel.flow import Flow, io, surely
from convmem.kernel.loop import Turn
from convmem.memory.provider import MemoryProvider
from convmem.memory.view import History
from convmem.messages import Message, Status

logger = logging.getLogger("convmem.memory")


class TurnKeeper:
    """The memory side of one run. The turn is stored once, under the run's id."""

    def __init__(self, memory: MemoryProvider, context: Context) -> None:
        self._memory = memory
        self._key = context.run_id
        self._name = str(context.conversation_id)
        self._history = History()

    def load(self) -> Flow[None]:
        """Read what the policy needs of the history."""
        memory = self._memory
        loaded = yield from io(memory.history, memory.ahistory, self._name)
        self._history = loaded if isinstance(loaded, History) else History(loaded)

    def view(self, turn: Sequence[Message]) -> Flow[tuple[Message, ...]]:
        """Return what the model sees of the history and the turn so far."""
        memory, history = self._memory, self._history
        view = yield from io(
            memory.plan,
            memory.aplan,
            self._name,
            history + turn,
            open_from=len(history),
        )
        return view.messages

    def keep(self, messages: Sequence[Message]) -> Flow[None]:
        """Store a turn that has ended; one stored before under the same run is
        superseded by it.

        Its tools must not run again for a store that was busy: it is tried once more,
        then `TurnNotSaved` hands the turn to the caller. When the memory refuses it for
        good (`BadInput`), at least the user's messages are stored, as ``failed``.
        """
        try:
            yield from self._store(messages)
        except BadInput:
            yield from self._keep_questions(messages)
            raise
        except Exception:  # noqa: BLE001 - a backend's own error
            yield from self._store_again(messages)

    def keep_broken(self, turn: Turn, partial: Completion | None) -> Flow[None]:
        """Store a turn that broke off: the user's message and what came of the answer,
        marked ``incomplete``; ``failed`` when nothing came.

        A turn that this run has stored before stays. A failure is logged, since the
        caller must hear of the one that broke the turn.
        """
        messages = list(turn.messages)
        reply = broken_reply(partial)
        if reply.status == "incomplete":
            messages.append(reply)
        answered = turn.completions or reply.status == "incomplete"
        status: Status = "incomplete" if answered else "failed"
        marked = [m.replace(status=status) if m.role == "user" else m for m in messages]
        try:
            yield from self._append(marked, self._key)
        except IdempotencyConflict:
            logger.info("An earlier attempt of this run is stored already.")
        except Exception:
            logger.exception("A run that broke off could not be stored.")

    def _keep_questions(self, messages: Sequence[Message]) -> Flow[None]:
        """Store at least what the user wrote, when what answers it cannot be stored."""
        asked = [m.replace(status="failed") for m in messages if m.role == "user"]
        try:
            yield from self._append(asked, self._key)
        except Exception:
            logger.exception("A run that broke off could not be stored.")

    def _store_again(self, messages: Sequence[Message]) -> Flow[None]:
        try:
            yield from self._store(messages)
        except Exception as error:
            raise TurnNotSaved(
                "The turn has ended, but its memory could not store it. Do not run it "
                "again: append error.messages under error.key.",
                conversation_id=self._name,
                messages=tuple(messages),
                key=self._key,
            ) from error

    def _store(self, messages: Sequence[Message]) -> Flow[None]:
        replaced = {p for message in self._history for p in message.supersedes}
        gone: tuple[int, ...] = ()
        for attempt in count():
            key = f"{self._key}:{attempt}" if attempt else self._key
            batch = [messages[0].replace(supersedes=gone), *messages[1:]]
            try:
                stored = yield from self._append(batch, key)
            except IdempotencyConflict as conflict:
                gone += yield from self._stored_turn(conflict.details.get("position"))
            else:
                if stored[0].position not in replaced:
                    return
                gone += tuple(m.position for m in stored if m.position is not None)

    def _stored_turn(self, first: int | None) -> Flow[tuple[int, ...]]:
        """Return the positions of the turn that was stored from ``first`` on."""
        memory = self._memory
        history = yield from io(memory.history, memory.ahistory, self._name)
        found: list[Message] = []
        for message in history:
            if message.position is None or first is None or message.position < first:
                continue
            if message.role == "user" and found and found[-1].role != "user":
                break
            found.append(message)
        return tuple(m.position for m in found if m.position is not None)

    def _append(self, messages: Sequence[Message], key: str) -> Flow[list[Message]]:
        memory, batch = self._memory, list(messages)

        def append() -> Flow[list[Message]]:
            return io(memory.append, memory.aappend, self._name, batch, key=key)

        return surely(append) if memory.supports_idempotency else append()


def broken_reply(partial: Completion | None) -> Message:
    """Return what is kept of an answer that broke off: ``incomplete`` with its text, or
    ``failed`` without any. Tool calls had only half arrived and are left out."""
    message = Message.assistant("") if partial is None else reply_of(partial)
    message = message.replace(tool_calls=())
    if message.content is None:
        message = message.replace(content="")
    return message.replace(status="failed" if message.is_empty else "incomplete")
