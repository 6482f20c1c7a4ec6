"""One request from end to end: what is recorded, and when."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from asgiref.sync import sync_to_async
from django.db import DatabaseError, connection, connections, transaction

from convmem.agent import Agent, override_agent
from convmem.chat import ChatRequest, Completion
from convmem.exceptions import (
    BadInput,
    InvalidConversationId,
    MessageTooLarge,
    OwnerMismatch,
    ProviderTimeout,
    RoundsExceeded,
    RunInTransaction,
    StoreBusy,
    StreamIncomplete,
    TurnNotSaved,
    UnknownAgent,
)
from convmem.handlers import stores
from convmem.kernel.flow import iterate
from convmem.messages import Message, ToolCall, Usage, decode
from convmem.models import Run
from convmem.owners import NOBODY, Owner
from convmem.pipeline import arun_agent, run_agent, run_flow
from convmem.stores import LocalStore
from convmem.testing.model_server import ModelServer, Received, Reply
from convmem.testing.service import BrokenReply, FakeService

pytestmark = pytest.mark.django_db(transaction=True)

ALICE = Owner(name="user", id="1")
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def serve() -> Iterator[Callable[..., FakeService]]:
    """Return a function that registers the agent ``bot`` with scripted replies."""
    with override_agent("bot", Agent(FakeService())):

        def build(*replies: Any, **agent: Any) -> FakeService:
            service = FakeService(replies)
            with_memory = Agent(service, **agent)
            stack.append(override_agent("bot", with_memory))
            stack[-1].__enter__()
            return service

        stack: list[Any] = []
        yield build
        for override in reversed(stack):
            override.__exit__(None, None, None)


@pytest_asyncio.fixture
async def threads_closed() -> AsyncIterator[None]:
    """Close the connection of the thread that served the event loop."""
    yield
    await sync_to_async(connections.close_all)()


def stored(conversation_id: str, owner: Owner = ALICE) -> list[Message]:
    return stores["default"].for_owner(owner).get(conversation_id)


def messages_in(text: str) -> list[Message]:
    return [decode(json.dumps(body)) for body in json.loads(text)]


def answer(text: str, **fields: Any) -> Completion:
    return Completion(message=Message.assistant(text), **fields)


def test_a_run_is_recorded_from_question_to_answer(serve: Any) -> None:
    usage = Usage(input_tokens=12, output_tokens=3, total_tokens=15, cached_tokens=4)
    serve(answer("Hello!", usage=usage, model="m-1"))

    outcome = run_agent("bot", "Hi", conversation_id="c", owner=ALICE)

    assert outcome.reply.text == "Hello!"
    assert outcome.conversation_id == "c"
    row = Run.objects.get()
    assert row == outcome.run
    assert (row.status, row.agent_name, row.rounds) == ("completed", "bot", 1)
    assert (row.owner_name, row.owner_id) == ("user", "1")
    assert [(m.role, m.text) for m in messages_in(row.input)] == [("user", "Hi")]
    assert [(m.role, m.text) for m in messages_in(row.output)] == [
        ("assistant", "Hello!")
    ]
    assert row.model == "m-1"
    assert (row.input_tokens, row.output_tokens, row.total_tokens) == (12, 3, 15)
    assert (row.cached_tokens, row.reasoning_tokens) == (4, None)
    assert (row.error_code, row.error_message) == ("", "")
    assert row.created_at == row.started_at < row.finished_at
    assert [m.text for m in stored("c")] == ["Hi", "Hello!"]


async def test_an_async_run_is_recorded_alike(serve: Any, threads_closed: None) -> None:
    serve(answer("Hello!"))
    outcome = await arun_agent("bot", "Hi", conversation_id="c", owner=ALICE)
    row = await Run.objects.aget()
    assert (row.id, row.status) == (outcome.run.id, "completed")
    assert [m.text for m in messages_in(row.output)] == ["Hello!"]


def test_the_row_stands_before_the_model_is_called(serve: Any) -> None:
    seen: list[Run] = []

    def look(request: ChatRequest) -> str:
        seen.append(Run.objects.get())
        return "Hello!"

    serve(look)
    run_agent("bot", "Hi", owner=ALICE)

    (row,) = seen
    assert (row.status, row.finished_at, row.output) == ("running", None, "")
    assert row.started_at is not None
    assert [m.text for m in messages_in(row.input)] == ["Hi"]


def test_a_run_costs_two_queries_of_its_own(
    serve: Any, settings: Any, django_assert_num_queries: Any
) -> None:
    settings.CONVMEM = {"ALLOW_RUN_IN_TRANSACTION": True}
    serve("Hello!", memory=None)
    with transaction.atomic(), django_assert_num_queries(2):
        run_agent("bot", "Hi", owner=ALICE)


def test_a_conversation_goes_on_and_a_new_one_begins(serve: Any) -> None:
    service = serve("one", "two", "three")
    first = run_agent("bot", "a", owner=ALICE)
    run_agent("bot", "b", conversation_id=first.conversation_id, owner=ALICE)
    other = run_agent("bot", "c", owner=ALICE)

    assert [m.text for m in service.requests[1].messages] == ["a", "one", "b"]
    assert [m.text for m in service.requests[2].messages] == ["c"]
    assert other.conversation_id != first.conversation_id


def test_owners_do_not_share_a_conversation(serve: Any) -> None:
    service = serve("one", "two", "three")
    for owner in (ALICE, Owner(name="user", id="2"), None):
        run_agent("bot", "hi", conversation_id="c", owner=owner)
    assert [len(request.messages) for request in service.requests] == [1, 1, 1]
    assert [m.text for m in stored("c", NOBODY)] == ["hi", "three"]


def test_rounds_and_usage_of_a_tool_loop_are_added_up(serve: Any) -> None:
    def clock() -> str:
        """Tell the time."""
        return "noon"

    call = ToolCall(id="1", name="clock", arguments="{}")
    serve(
        Completion(
            message=Message.assistant(tool_calls=(call,)),
            finish_reason="tool_calls",
            usage=Usage(input_tokens=10, output_tokens=1),
        ),
        answer("It is noon.", usage=Usage(input_tokens=20, output_tokens=5)),
        tools=[clock],
    )
    run_agent("bot", "What time is it?", owner=ALICE)
    row = Run.objects.get()
    assert row.rounds == 2
    assert (row.input_tokens, row.output_tokens) == (30, 6)


@pytest.mark.parametrize("memory", ["default", None, {"store": LocalStore()}])
def test_no_database_connection_is_held_while_the_model_thinks(
    serve: Any, settings: Any, memory: Any
) -> None:
    held: list[bool] = []

    def look(request: ChatRequest) -> str:
        held.append(connection.connection is not None)
        return "Hello!"

    serve(look, memory=memory)
    run_agent("bot", "Hi", owner=ALICE)
    assert held == [False]


def test_a_transaction_that_is_allowed_keeps_its_connection(
    serve: Any, settings: Any
) -> None:
    settings.CONVMEM = {"ALLOW_RUN_IN_TRANSACTION": True}
    serve("Hello!", memory=None)
    with transaction.atomic():
        run_agent("bot", "Hi", owner=ALICE)
        transaction.set_rollback(True)
    assert not Run.objects.exists()


# --- what never begins ---


def test_an_unknown_agent_leaves_no_row() -> None:
    with pytest.raises(UnknownAgent, match="ghost"):
        run_agent("ghost", "Hi", owner=ALICE)
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("given", "how", "error"),
    [
        ({"role": "robot", "content": "x"}, {}, BadInput),
        ([], {}, BadInput),
        (5, {}, BadInput),
        ("x" * 2000, {}, MessageTooLarge),
        ("x", {"conversation_id": "y" * 256}, InvalidConversationId),
        ("x", {"owner": "alice"}, BadInput),
    ],
)
def test_bad_input_leaves_no_row(
    serve: Any, settings: Any, given: Any, how: dict[str, Any], error: Any
) -> None:
    settings.CONVMEM = {"MAX_MESSAGE_BYTES": 1000}
    service = serve("never")
    with pytest.raises(error):
        run_agent("bot", given, **{"owner": ALICE, **how})
    assert not Run.objects.exists()
    assert service.requests == []


def test_a_memory_of_somebody_else_leaves_no_row(serve: Any) -> None:
    store = LocalStore().for_owner(Owner(name="user", id="2"))
    serve("never", memory={"store": store})
    with pytest.raises(OwnerMismatch):
        run_agent("bot", "Hi", owner=ALICE)
    assert not Run.objects.exists()


@pytest.mark.parametrize("memory", ["default", None])
def test_a_run_in_an_open_transaction_is_refused(serve: Any, memory: Any) -> None:
    service = serve("never", memory=memory)
    with transaction.atomic(), pytest.raises(RunInTransaction, match="on_commit"):
        run_agent("bot", "Hi", owner=ALICE)
    assert not Run.objects.exists()
    assert service.requests == []


def test_a_setting_allows_it_for_tests(serve: Any, settings: Any) -> None:
    settings.CONVMEM = {"ALLOW_RUN_IN_TRANSACTION": True}
    serve("Hello!")
    with transaction.atomic():
        run_agent("bot", "Hi", owner=ALICE)
    assert Run.objects.get().status == "completed"


# --- what fails ---


def test_a_providers_failure_is_recorded_and_raised(serve: Any) -> None:
    serve(ProviderTimeout("The model took longer than 5 s.", phase="total"))
    with pytest.raises(ProviderTimeout) as caught:
        run_agent("bot", "Hi", conversation_id="c", owner=ALICE)

    row = Run.objects.get()
    assert caught.value.details["run_id"] == str(row.id)
    assert caught.value.details["session_id"] == "c"
    assert (row.status, row.error_code) == ("failed", "provider_timeout")
    assert row.error_message == "The model took longer than 5 s."
    assert row.finished_at is not None
    assert [m.text for m in messages_in(row.input)] == ["Hi"]
    (kept,) = stored("c")
    assert (kept.text, kept.status) == ("Hi", "failed")


async def test_an_async_failure_is_recorded_alike(
    serve: Any, threads_closed: None
) -> None:
    serve(ProviderTimeout("late"))
    with pytest.raises(ProviderTimeout):
        await arun_agent("bot", "Hi", owner=ALICE)
    row = await Run.objects.aget()
    assert (row.status, row.error_code) == ("failed", "provider_timeout")


def test_a_partial_answer_is_kept_with_the_run(serve: Any) -> None:
    broken = StreamIncomplete("The stream ended early.", partial=answer("Hel"))
    serve(broken)
    with pytest.raises(StreamIncomplete):
        run_agent("bot", "Hi", conversation_id="c", owner=ALICE)
    (partial,) = messages_in(Run.objects.get().output)
    assert (partial.text, partial.status) == ("Hel", "incomplete")
    assert [(m.text, m.status) for m in stored("c")] == [
        ("Hi", "incomplete"),
        ("Hel", "incomplete"),
    ]


def test_too_many_rounds_are_a_failed_run(serve: Any, settings: Any) -> None:
    settings.CONVMEM = {"MAX_ROUNDS": 1}
    call = ToolCall(id="1", name="clock")
    serve(Message.assistant(tool_calls=(call,)), tools=[])
    with pytest.raises(RoundsExceeded):
        run_agent("bot", "Hi", owner=ALICE)
    assert Run.objects.get().error_code == "rounds_exceeded"


def test_a_foreign_error_tells_the_row_its_kind_and_no_secret(serve: Any) -> None:
    serve(RuntimeError("password=hunter2"))
    with pytest.raises(RuntimeError):
        run_agent("bot", "Hi", owner=ALICE)
    row = Run.objects.get()
    assert (row.status, row.error_code) == ("failed", "internal_error")
    assert row.error_message == "RuntimeError; see the log."


def test_an_answer_that_the_memory_refused_is_kept_with_the_run(serve: Any) -> None:
    class Stuck(LocalStore):
        def add(self, *args: Any, **kwargs: Any) -> Any:
            raise StoreBusy("locked")

    serve("Hello!", memory={"store": Stuck()})
    with pytest.raises(TurnNotSaved):
        run_agent("bot", "Hi", owner=ALICE)
    row = Run.objects.get()
    assert (row.status, row.error_code) == ("failed", "turn_not_saved")
    assert [m.text for m in messages_in(row.output)] == ["Hello!"]


def test_a_row_that_cannot_be_finished_does_not_hide_the_failure(
    serve: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    def fail(request: ChatRequest) -> ProviderTimeout:
        def save(*args: Any, **kwargs: Any) -> None:
            raise DatabaseError("gone")

        monkeypatch.setattr(Run, "save", save)
        return ProviderTimeout("late")

    serve(fail)
    with pytest.raises(ProviderTimeout):
        run_agent("bot", "Hi", owner=ALICE)
    assert "could not be finished" in caplog.text
    assert Run.objects.get().status == "running"


def test_characters_that_no_database_keeps_are_replaced(serve: Any) -> None:
    serve("a\x00b\ud800")
    run_agent("bot", "c\x00d\udfff", owner=ALICE)
    row = Run.objects.get()
    mark = "\N{REPLACEMENT CHARACTER}"
    assert messages_in(row.input)[0].text == f"c{mark}d{mark}"
    assert messages_in(row.output)[0].text == f"a{mark}b{mark}"


# --- who leaves ---


def test_a_caller_who_leaves_interrupts_the_run(serve: Any) -> None:
    serve(BrokenReply("Hello there", KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        run_agent("bot", "Hi", conversation_id="c", owner=ALICE)
    row = Run.objects.get()
    assert (row.status, row.error_code) == ("interrupted", "interrupted")
    assert row.finished_at is not None
    assert stored("c")[0].text == "Hi"


async def test_a_cancelled_task_interrupts_the_run(
    serve: Any, threads_closed: None
) -> None:
    service = serve("never")
    asked = asyncio.Event()

    async def hang(request: ChatRequest) -> Completion:
        asked.set()
        return await asyncio.Event().wait()  # type: ignore[return-value]

    service.acomplete = hang
    task = asyncio.create_task(arun_agent("bot", "Hi", owner=ALICE))
    await asyncio.wait_for(asked.wait(), timeout=10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    row = await Run.objects.aget()
    assert (row.status, row.error_code) == ("interrupted", "interrupted")


def test_closing_a_streamed_run_keeps_the_row(serve: Any) -> None:
    serve("Hello there")
    events = iterate(run_flow("bot", "Hi", conversation_id="c", owner=ALICE))
    next(iter(events))
    events.close()
    assert Run.objects.get().status == "interrupted"


CHILD = """
import sys
import django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from convmem.agent import Agent, register_agent
from convmem.clients import HttpChatService
from convmem.owners import Owner
from convmem.pipeline import run_agent

model = HttpChatService("custom", "any", base_url=sys.argv[1])
register_agent("bot", Agent(model))
run_agent("bot", "Remember me", conversation_id="c", owner=Owner(name="user", id="1"))
"""


@pytest.mark.process
def test_a_killed_process_leaves_the_row_with_its_input(tmp_path: Path) -> None:
    asked = threading.Event()

    def think(received: Received) -> Reply:
        asked.set()
        return Reply(steps=[5.0, b"too late"])

    with ModelServer() as server:
        server.script(think)
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, server.url],
            cwd=ROOT,
            env={
                "DJANGO_SETTINGS_MODULE": "project.settings",
                "CONVMEM_DEMO_DIR": str(tmp_path),
                "PYTHONPATH": str(ROOT),
            },
        )
        try:
            assert asked.wait(timeout=60)
        finally:
            child.kill()
        assert child.wait() == -signal.SIGKILL

    with closing(sqlite3.connect(tmp_path / "demo.sqlite3")) as database:
        (row,) = database.execute(
            "SELECT status, agent_name, owner_id, conversation_id, input, finished_at "
            "FROM convmem_run"
        ).fetchall()
    assert row[:4] == ("running", "bot", "1", "c")
    assert [m.text for m in messages_in(row[4])] == ["Remember me"]
    assert row[5] is None
