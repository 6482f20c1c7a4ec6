"""The tool loop that kernel and agent share: ask, run the tools, ask again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from convmem.chat import Completion, CompletionDone, ToolResultDelta
from convmem.exceptions import RoundsExceeded
from convmem.kernel.context import Context, Result, reply_of, total_usage
from convmem.kernel.operations import Flow, emit, many
from convmem.messages import Message, ToolCall

UNFINISHED = "No result: the run ended before this call was finished."
Ask: TypeAlias = "Callable[[Turn], Flow[Completion]]"
Execute: TypeAlias = Callable[[ToolCall], Flow[Message]]


@dataclass
class Turn:
    """A turn as it grows. It is valid at any moment between two operations: no call
    stays without a result once the loop has left it.

    ``fresh`` is what the model has not been sent yet: the caller's messages at first,
    then the newest tool results.
    """

    messages: list[Message]
    fresh: Sequence[Message] = ()
    completions: list[Completion] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fresh = tuple(self.messages)

    @property
    def rounds(self) -> int:
        """How many answers the model has given."""
        return len(self.completions)

    def result(self, context: Context, run_id: str) -> Result:
        """Return the outcome; the model must have answered."""
        last = self.completions[-1]
        return Result(
            reply=reply_of(last),
            context=context,
            messages=tuple(self.messages),
            rounds=self.rounds,
            run_id=run_id,
            usage=total_usage(self.completions),
            finish_reason=last.finish_reason,
        )


def tool_loop(turn: Turn, ask: Ask, execute: Execute, *, max_rounds: int) -> Flow[None]:
    """Grow ``turn`` until the model answers without tool calls.

    ``ask`` calls the model once, ``execute`` runs one tool and never fails for what a
    tool did. Raises `RoundsExceeded` after ``max_rounds`` calls of the model; the last
    calls then stand in ``turn`` with error results.
    """
    while True:
        completion = yield from ask(turn)
        turn.completions.append(completion)
        turn.messages.append(reply_of(completion))
        calls = completion.tool_calls
        results: list[Message | None] = [None] * len(calls)
        try:
            yield from emit(CompletionDone(completion=completion))
            if not calls:
                return
            if turn.rounds >= max_rounds:
                raise RoundsExceeded(
                    f"The model still asks for tools after {max_rounds} rounds; "
                    "what came so far is kept. Raise max_rounds if it needs more.",
                    rounds=max_rounds,
                )
            yield from many(
                [_answer(execute, call, results, n) for n, call in enumerate(calls)]
            )
        finally:
            turn.fresh = [
                result or unfinished(call)
                for call, result in zip(calls, results, strict=True)
            ]
            turn.messages.extend(turn.fresh)


def unfinished(call: ToolCall) -> Message:
    """Return the error result of a call whose own result never came."""
    return Message.tool(call.id, UNFINISHED, name=call.name, is_error=True)


def _answer(
    execute: Execute, call: ToolCall, results: list[Message | None], place: int
) -> Flow[None]:
    # Written down at once: when a sibling fails, this result must not get lost.
    result = results[place] = yield from execute(call)
    yield from emit(ToolResultDelta(message=result))
