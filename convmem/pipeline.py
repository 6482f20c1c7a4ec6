"""One request from end to end: record it, run the agent, record how it ended.

The pipeline alone writes run rows. A row stands, with its input, before a model is
called, and it is finished whatever happens; only a killed process leaves one
``running``, and then the input is still there.
"""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from asgiref.sync import sync_to_async
from django.db import connections
from django.utils import timezone

from convmem.agent import get_agent
from convmem.chat import Completion
from convmem.conf import settings
from convmem.exceptions import (
    ConvmemError,
    Interrupted,
    RunInTransaction,
    TurnNotSaved,
)
from convmem.kernel.context import Result
from convmem.kernel.flow import Flow, arun, io, run
from convmem.memory.connection import close_idle_connections
from convmem.messages import Message, Usage
from convmem.models import Run
from convmem.owners import NOBODY, Owner, check_owner
from convmem.stores import DatabaseStore
from convmem.validation import as_messages, check_conversation_id, storable

logger = logging.getLogger("convmem.pipeline")

Input: TypeAlias = str | Message | dict[str, Any] | Sequence[Message | dict[str, Any]]


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A completed run: its row, and what the agent returned."""

    run: Run
    result: Result

    @property
    def reply(self) -> Message:
        """The agent's answer."""
        return self.result.reply

    @property
    def conversation_id(self) -> str:
        """Where the conversation goes on."""
        return self.run.conversation_id


def run_agent(
    agent_name: str,
    input: Input,  # noqa: A002 - the word of the domain
    *,
    conversation_id: str | None = None,
    owner: Owner | None,
) -> RunOutcome:
    """Run the agent registered as ``agent_name`` and record the run.

    ``owner`` (None: `NOBODY`) is whose conversation it is; without a
    ``conversation_id`` a new one is made. Raises `UnknownAgent`, `BadInput` and
    `RunInTransaction` before anything is written; whatever the run itself raises is
    recorded first, and if it is a `ConvmemError` its ``details`` have ``run_id`` and
    ``session_id``.
    """
    return run(
        run_flow(agent_name, input, conversation_id=conversation_id, owner=owner)
    )


async def arun_agent(
    agent_name: str,
    input: Input,  # noqa: A002
    *,
    conversation_id: str | None = None,
    owner: Owner | None,
) -> RunOutcome:
    """Do what `run_agent` does, in the running event loop."""
    flow = run_flow(agent_name, input, conversation_id=conversation_id, owner=owner)
    return await arun(flow)


def run_flow(
    agent_name: str,
    input: Input,  # noqa: A002
    *,
    conversation_id: str | None,
    owner: Owner | None,
) -> Flow[RunOutcome]:
    """The flow behind `run_agent`, for any driver."""
    agent = get_agent(agent_name)
    owner = NOBODY if owner is None else check_owner(owner)
    messages = as_messages(input)
    row = _new_row(agent_name, messages, conversation_id, owner)
    # Checked now, run later: what is wrong with the call leaves no row.
    answering = agent.flow(
        messages, row.conversation_id, owner=owner, run_id=row.id.hex
    )
    try:
        yield from io(_begin, sync_to_async(_begin), row)
        if not _gives_connections_back(agent.memory_for(owner)):
            yield from io(close_idle_connections, _aclose_idle_connections)
        result = yield from answering
    except (Exception, Interrupted) as error:
        if isinstance(error, ConvmemError):
            error.details.update(run_id=str(row.id), session_id=row.conversation_id)
        _mark_failed(row, error)
        yield from io(_end_quietly, sync_to_async(_end_quietly), row)
        raise
    _mark_completed(row, result)
    yield from io(_end, sync_to_async(_end), row)
    return RunOutcome(row, result)


def _new_row(
    agent_name: str,
    messages: list[Message],
    conversation_id: str | None,
    owner: Owner,
) -> Run:
    if conversation_id is None:
        conversation_id = str(uuid.uuid4())
    bodies = [
        storable(message, index=index, max_bytes=settings.max_message_bytes)[1]
        for index, message in enumerate(messages)
    ]
    now = timezone.now()
    return Run(
        agent_name=agent_name,
        owner_name=owner.name,
        owner_id=owner.id,
        conversation_id=check_conversation_id(conversation_id),
        status=Run.Status.RUNNING,
        input=f"[{','.join(bodies)}]",
        created_at=now,
        started_at=now,
    )


# --- what is written ---


def _begin(row: Run) -> None:
    _refuse_transaction()
    row.save(force_insert=True)


def _gives_connections_back(memory: object) -> bool:
    """Say whether the agent itself does so before it waits for the model."""
    return isinstance(getattr(memory, "store", None), DatabaseStore)


_aclose_idle_connections = sync_to_async(close_idle_connections)


def _end(row: Run) -> None:
    row.finished_at = timezone.now()
    row.save(force_update=True)


def _end_quietly(row: Run) -> None:
    """Finish a failed run; trouble in doing so must not hide the failure itself."""
    if row._state.adding:
        return  # it was never begun
    try:
        _end(row)
    except Exception:
        logger.exception("Run %s ended, but its row could not be finished.", row.id)


def _refuse_transaction() -> None:
    if settings.allow_run_in_transaction:
        return
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            raise RunInTransaction(
                f"A run was started inside an open transaction on "
                f"{connection.alias!r}: a failing model would roll the user's message "
                "back. Start it after the commit (transaction.on_commit), or mark the "
                "view transaction.non_atomic_requests. Tests may set "
                'CONVMEM["ALLOW_RUN_IN_TRANSACTION"].'
            )


# --- how it ended ---


def _mark_completed(row: Run, result: Result) -> None:
    row.status = Run.Status.COMPLETED
    row.output = _output(result.reply)
    row.model = result.reply.model or ""
    row.rounds = result.rounds
    _set_usage(row, result.usage)


def _mark_failed(row: Run, error: BaseException) -> None:
    left = isinstance(error, Interrupted)
    row.status = Run.Status.INTERRUPTED if left else Run.Status.FAILED
    if isinstance(error, ConvmemError | Interrupted):
        row.error_code, row.error_message = error.code, error.message
    else:
        # The text of a foreign error may hold anything; whoever catches it logs it.
        row.error_code = "internal_error"
        row.error_message = f"{type(error).__name__}; see the log."
    partial = getattr(error, "partial", None)
    if isinstance(error, TurnNotSaved):
        row.output = _output(error.messages[-1])
    elif isinstance(partial, Completion) and not partial.message.is_empty:
        row.output = _output(partial.message.replace(status="incomplete"))
        row.model = partial.model
        _set_usage(row, partial.usage)


def _output(message: Message) -> str:
    _kept, body = storable(message, max_bytes=sys.maxsize)
    return f"[{body}]"


def _set_usage(row: Run, usage: Usage | None) -> None:
    if usage is None:
        return
    row.input_tokens = usage.input_tokens
    row.output_tokens = usage.output_tokens
    row.total_tokens = usage.total_tokens
    row.cached_tokens = usage.cached_tokens
    row.reasoning_tokens = usage.reasoning_tokens
