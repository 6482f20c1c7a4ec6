"""The agent: what it loads, shows and stores, in peace and when a turn breaks off."""

from __future__ import annotations

import asyncio
import threading
import uuid

import pytest
from django.db import connections, transaction

from convmem.agent import Agent
from convmem.exceptions import (
    ConfigurationError,
    InvalidConversationId,
    InvalidMessage,
    InvalidTool,
    MessageTooLarge,
    MixedMemory,
    OwnerMismatch,
    ProviderUnreachable,
    RoundsExceeded,
    RunInTransaction,
    StoreBusy,
    TurnNotSaved,
)
from convmem.kernel.context import Context
from convmem.kernel.flow import arun, run
from convmem.kernel.kernel import Kernel
from convmem.memory import DefaultMemoryProvider, violations
from convmem.memory.filter import memory_filter
from convmem.messages import Message
from convmem.owners import Owner
from convmem.stores.database import DatabaseStore
from convmem.stores.local import LocalStore
from convmem.testing.service import BrokenReply, FakeService
from tests.kernel.cutting import cut_everywhere, drive_async
from tests.kernel.tools import CALLERS, add, calls, roles, texts

both = pytest.mark.parametrize("caller", CALLERS, ids=lambda c: c.name)


@pytest.fixture
def store():
    return LocalStore(namespace=uuid.uuid4().hex)


def sent(service, number):
    return texts(service.requests[number].messages)


def view(store, name="c"):
    provider = DefaultMemoryProvider(store)
    return provider.prepare(name, provider.history(name))


# --- in peace ---


@both
def test_the_second_run_knows_what_the_first_said(store, caller):
    service = FakeService(["Hello Ada.", "You are Ada."])
    agent = Agent(service, memory={"store": store})
    assert caller.call(agent, "I am Ada.", "c").text == "Hello Ada."
    assert caller.call(agent, "Who am I?", "c").text == "You are Ada."
    assert sent(service, 1) == ["I am Ada.", "Hello Ada.", "Who am I?"]
    assert len(store.get("c")) == 4


@both
def test_another_agent_on_the_same_store_remembers(store, caller):
    caller.call(Agent(FakeService(["a"]), memory={"store": store}), "one", "c")
    service = FakeService(["b"])
    caller.call(Agent(service, memory={"store": store}), "two", "c")
    assert sent(service, 0) == ["one", "a", "two"]


@both
def test_all_of_a_turn_is_stored_once_at_its_end(store, caller):
    kept = []

    def model(request):
        kept.append(len(store.get("c")))
        return calls(("add", {"a": 1, "b": 2}))

    service = FakeService([model, "three"])
    agent = Agent(service, memory={"store": store}, tools=[add])
    result = caller.call(agent, "1+2?", "c")
    assert kept == [0]
    assert texts(store.get("c")) == ["1+2?", "", "3", "three"]
    assert texts(result.messages) == ["1+2?", "", "3", "three"]
    assert result.rounds == 2
    assert [m.status for m in store.get("c")] == ["complete"] * 4


@both
def test_two_turns_of_one_reply_are_four_messages(store, caller):
    """History that was read is not saved again."""
    agent = Agent(FakeService(["a", "b"]), memory={"store": store})
    caller.call(agent, "one", "c")
    caller.call(agent, "two", "c")
    assert texts(store.get("c")) == ["one", "a", "two", "b"]


class Counting(DefaultMemoryProvider):
    """Counts its verbs."""

    def __init__(self, store):
        super().__init__(store)
        self.count = {"history": 0, "plan": [], "append": 0}

    def _history(self, conversation_id):
        self.count["history"] += 1
        return super()._history(conversation_id)

    def plan(self, conversation_id, messages, *, open_from=None):
        self.count["plan"].append((len(messages), open_from))
        return super().plan(conversation_id, messages, open_from=open_from)

    def _append(self, conversation_id, messages, key):
        self.count["append"] += 1
        return super()._append(conversation_id, messages, key)


@both
def test_history_is_loaded_once_and_prepared_before_each_model_call(store, caller):
    store.add("c", ["old", Message.assistant("older")])
    memory = Counting(store)
    service = FakeService([calls(("add", {"a": 1, "b": 2})), "three"])
    caller.call(Agent(service, memory=memory, tools=[add]), "1+2?", "c")
    assert memory.count == {
        "history": 1,
        "plan": [(3, 2), (5, 2)],  # the open turn begins after the history
        "append": 1,
    }


@both
def test_a_window_trims_what_is_seen_and_not_what_is_stored(store, caller):
    service = FakeService(["a0", "a1", "a2"])
    agent = Agent(service, memory={"store": store, "window": 2})
    for number in range(3):
        caller.call(agent, f"u{number}", "c")
    assert sent(service, 2) == ["a1", "u2"]
    assert len(store.get("c")) == 6


@both
def test_the_open_turn_is_never_cut(store, caller):
    service = FakeService([calls(("add", {"a": 1, "b": 2})), "three"])
    agent = Agent(service, memory={"store": store, "window": 1}, tools=[add])
    store.add("c", ["old", Message.assistant("older")])
    caller.call(agent, "1+2?", "c")
    assert sent(service, 1) == ["1+2?", "", "3"]


@both
def test_instructions_stand_first_and_are_never_stored(store, caller):
    service = FakeService([calls(("add", {"a": 1, "b": 2})), "three", "next"])
    agent = Agent(
        service, memory={"store": store}, tools=[add], instructions=["I1", "I2"]
    )
    caller.call(agent, "1+2?", "c")
    for number in range(2):
        assert sent(service, number)[:2] == ["I1", "I2"]
    assert "system" not in roles(store.get("c"))
    newer = Agent(service, memory={"store": store}, instructions="J")
    caller.call(newer, "and?", "c")
    assert sent(service, 2)[0] == "J"
    assert "I1" not in sent(service, 2)  # no old prompt lives on


@both
def test_a_stream_stores_what_a_run_stores(store, caller):
    service = FakeService([calls(("add", {"a": 1, "b": 2})), "three"], chunk=2)
    agent = Agent(service, memory={"store": store}, tools=[add])
    events, result = caller.stream(agent, "1+2?", "c")
    assert texts(store.get("c")) == ["1+2?", "", "3", "three"]
    assert result.text == "three"
    assert "".join(getattr(e, "text", "") for e in events) == "three"


@both
def test_without_memory_nothing_is_stored_and_nothing_remembered(caller):
    service = FakeService([calls(("add", {"a": 1, "b": 2})), "three", "who?"])
    agent = Agent(service, memory=None, tools=[add])
    caller.call(agent, "1+2?", "c")
    caller.call(agent, "again", "c")
    assert sent(service, 1) == ["1+2?", "", "3"]
    assert sent(service, 2) == ["again"]


@both
def test_metadata_and_owner_reach_tools_and_filters(store, caller):
    seen = []

    def who(context: Context):
        return f"{context.owner} {context.metadata['page']}"

    def look(request, call_next):
        seen.append(request.context.owner)
        return (yield from call_next(request))

    ada = Owner(name="user", id="1")
    kernel = Kernel(FakeService([calls(("who", {})), "ok"]), [look], [who])
    agent = Agent(kernel=kernel, memory={"store": store})
    result = caller.call(agent, "who?", "c", owner=ada, metadata={"page": "home"})
    assert result.messages[2].content == "user:1 home"
    assert seen == [ada, ada]


@both
def test_each_owner_has_a_conversation_of_their_own(store, caller):
    ada, bob = Owner(name="user", id="1"), Owner(name="user", id="2")
    service = FakeService(["to Ada", "to Bob"])
    agent = Agent(service, memory={"store": store})
    caller.call(agent, "Ada here", "c", owner=ada)
    caller.call(agent, "Bob here", "c", owner=bob)
    assert sent(service, 1) == ["Bob here"]
    assert texts(store.for_owner(ada).get("c")) == ["Ada here", "to Ada"]


@both
def test_a_store_of_another_owner_is_refused(store, caller):
    ada, bob = Owner(name="user", id="1"), Owner(name="user", id="2")
    agent = Agent(FakeService(), memory={"store": store.for_owner(ada)})
    with pytest.raises(OwnerMismatch):
        caller.call(agent, "hi", "c", owner=bob)


@both
def test_options_of_one_run_reach_the_model(store, caller):
    service = FakeService(["a"])
    agent = Agent(service, memory={"store": store})
    caller.call(agent, "hi", "c", options={"temperature": 0.1})
    assert service.requests[0].temperature == 0.1


# --- ids ---


def test_without_an_id_the_agent_makes_one_once_and_keeps_it(store):
    service = FakeService(["a", "b"])
    agent = Agent(service, memory={"store": store})
    first = agent.run("one")
    second = asyncio.run(agent.arun("two"))
    assert first.context.conversation_id == agent.conversation_id
    assert second.context.conversation_id == agent.conversation_id
    assert texts(store.get(agent.conversation_id)) == ["one", "a", "two", "b"]
    other = Agent(FakeService(["c"]), memory={"store": store})
    assert other.conversation_id != agent.conversation_id


def test_an_agent_may_have_an_id_and_a_run_another(store):
    agent = Agent(FakeService(["a", "b"]), memory={"store": store}, conversation_id="c")
    agent.run("one")
    agent.run("two", "d")
    assert texts(store.get("c")) == ["one", "a"]
    assert texts(store.get("d")) == ["two", "b"]


def test_threads_that_start_an_agent_together_make_one_id(store):
    agent = Agent(FakeService(["a"], repeat=True), memory={"store": store})
    ready = threading.Barrier(8)
    found = []

    def start():
        ready.wait(5)
        found.append(agent.conversation_id)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert len(found) == 8
    assert len(set(found)) == 1


def test_two_threads_share_one_agent(store):
    def echo(request):
        return f"to {request.messages[-1].text}"

    service = FakeService([echo], repeat=True, delay=0.002)
    agent = Agent(service, memory={"store": store})
    errors = []

    def work(name):
        for number in range(10):
            text = agent.run(f"{name}{number}", name).text
            if text != f"to {name}{number}":
                errors.append(text)

    threads = [threading.Thread(target=work, args=(n,)) for n in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert errors == []
    for name in ("a", "b"):
        kept = texts(store.get(name))
        assert kept[::2] == [f"{name}{n}" for n in range(10)]
        assert kept[1::2] == [f"to {name}{n}" for n in range(10)]


@pytest.mark.parametrize(
    ("given", "error"),
    [("", InvalidConversationId), ("x" * 256, InvalidConversationId)],
)
def test_a_bad_id_is_refused(store, given, error):
    agent = Agent(FakeService(), memory={"store": store})
    with pytest.raises(error):
        agent.run("hi", given)
    with pytest.raises(error):
        Agent(FakeService(), conversation_id=given)


def test_bad_input_is_refused_before_anything_is_done(store):
    service = FakeService()
    agent = Agent(service, memory={"store": store})
    for call in (agent.run, agent.stream, agent.astream):
        with pytest.raises(InvalidMessage):
            call([{"role": "robot", "content": "x"}], "c")
    assert service.requests == []
    assert store.get("c") == []


# --- llm or kernel ---


def test_an_agent_needs_a_service_or_a_kernel():
    with pytest.raises(ConfigurationError, match="one of them"):
        Agent()
    with pytest.raises(ConfigurationError, match="one of them"):
        Agent(FakeService(), kernel=Kernel(FakeService()))
    with pytest.raises(ConfigurationError, match="kernel must be a Kernel"):
        Agent(kernel=FakeService())


def test_a_kernel_with_a_memory_filter_is_refused(store):
    kernel = Kernel(FakeService(), [memory_filter(store)])
    for memory in ("default", None, {"store": store}):
        with pytest.raises(MixedMemory, match="has a memory filter"):
            Agent(kernel=kernel, memory=memory)


@both
def test_other_filters_belong_to_the_kernel_and_run(store, caller):
    def shout(request, call_next):
        reply = yield from call_next(request)
        return type(reply)(message=reply.message.replace(content=reply.text.upper()))

    agent = Agent(kernel=Kernel(FakeService(["hi"]), [shout]), memory={"store": store})
    assert caller.call(agent, "go", "c").text == "HI"
    assert texts(store.get("c")) == ["go", "HI"]


def test_tools_of_agent_and_kernel_join(store):
    def sub(a: int, b: int):
        return a - b

    service = FakeService(["ok"])
    kernel = Kernel(service, tools=[add])
    Agent(kernel=kernel, memory=None, tools=[sub]).run("go")
    assert [t.name for t in service.requests[0].tools] == ["add", "sub"]
    assert [t.name for t in kernel.toolbox] == ["add"]
    with pytest.raises(InvalidTool, match="'add'"):
        Agent(kernel=kernel, tools=[add])


def test_a_service_alias_is_looked_up_at_the_first_run(settings):
    agent = Agent("late", memory=None)
    settings.CONVMEM = {
        "SERVICES": {
            "late": {
                "BACKEND": "convmem.testing.service.FakeService",
                "OPTIONS": {"REPLIES": ["now"]},
            }
        }
    }
    assert agent.run("hi").text == "now"


# --- when a turn breaks off ---


@both
def test_a_model_that_never_answers_loses_no_prompt(store, caller):
    agent = Agent(FakeService([ProviderUnreachable("x")]), memory={"store": store})
    with pytest.raises(ProviderUnreachable):
        caller.call(agent, "precious", "c")
    kept = store.get("c")
    assert [(m.role, m.text, m.status) for m in kept] == [
        ("user", "precious", "failed")
    ]


@both
def test_a_failed_turn_is_left_out_of_the_next_view(store, caller):
    service = FakeService([ProviderUnreachable("x"), "fine"])
    agent = Agent(service, memory={"store": store})
    with pytest.raises(ProviderUnreachable):
        caller.call(agent, "first", "c")
    caller.call(agent, "second", "c")
    assert sent(service, 1) == ["second"]


@both
def test_a_broken_stream_keeps_question_and_partial_answer_marked(store, caller):
    broken = BrokenReply("half an answer", ProviderUnreachable("cut"))
    agent = Agent(FakeService([broken]), memory={"store": store})
    with pytest.raises(ProviderUnreachable):
        caller.stream(agent, "hi", "c")
    assert [(m.text, m.status) for m in store.get("c")] == [
        ("hi", "incomplete"),
        ("half an answer", "incomplete"),
    ]


@both
def test_leaving_a_stream_keeps_what_came_marked(store, caller):
    service = FakeService(["abcdef", "go on"], chunk=2)
    agent = Agent(service, memory={"store": store})
    caller.stream(agent, "hi", "c", leave_after=2)
    assert [(m.text, m.status) for m in store.get("c")] == [
        ("hi", "incomplete"),
        ("abcd", "incomplete"),
    ]
    assert service.closed == 1
    caller.call(agent, "more", "c")
    assert sent(service, 1) == ["hi", "abcd", "more"]


@both
def test_an_error_after_a_tool_keeps_its_result(store, caller):
    service = FakeService([calls(("add", {"a": 1, "b": 2})), ProviderUnreachable("x")])
    agent = Agent(service, memory={"store": store}, tools=[add])
    with pytest.raises(ProviderUnreachable):
        caller.call(agent, "1+2?", "c")
    kept = store.get("c")
    assert texts(kept) == ["1+2?", "", "3"]
    assert kept[0].status == "incomplete"
    assert violations(kept) == []


@both
def test_too_many_rounds_keep_what_came_and_leave_no_call_open(store, caller):
    service = FakeService([calls(("add", {"a": 1, "b": 1}))], repeat=True)
    kernel = Kernel(service, max_rounds=2)
    agent = Agent(kernel=kernel, memory={"store": store}, tools=[add])
    with pytest.raises(RoundsExceeded):
        caller.call(agent, "go", "c")
    kept = store.get("c")
    assert roles(kept) == ["user", "assistant", "tool", "assistant", "tool"]
    assert violations(kept) == []


class Failing(LocalStore):
    """Fails to write as often as told."""

    def __init__(self, *, failures, error=None):
        super().__init__(namespace=uuid.uuid4().hex)
        self.failures = failures
        self.error = error or StoreBusy("locked")

    def add(self, conversation_id, messages, *, key=None):
        if self.failures:
            self.failures -= 1
            raise self.error
        return super().add(conversation_id, messages, key=key)


@both
@pytest.mark.parametrize("error", [StoreBusy("locked"), OSError("disk")])
def test_a_store_that_fails_once_does_not_run_the_tool_again(caller, error):
    ran = []

    def order():
        ran.append(True)
        return "ordered"

    store = Failing(failures=1, error=error)
    service = FakeService([calls(("order", {})), "done"])
    agent = Agent(service, memory={"store": store}, tools=[order])
    assert caller.call(agent, "order it", "c").text == "done"
    assert ran == [True]
    assert texts(store.get("c")) == ["order it", "", "ordered", "done"]


@both
def test_a_store_that_stays_down_hands_the_turn_over_to_be_stored_later(caller):
    store = Failing(failures=2)
    service = FakeService([calls(("add", {"a": 1, "b": 2})), "three"])
    agent = Agent(service, memory={"store": store}, tools=[add])
    with pytest.raises(TurnNotSaved) as caught:
        caller.call(agent, "1+2?", "c", run_id="r1")
    error = caught.value
    assert isinstance(error.__cause__, StoreBusy)
    assert (error.conversation_id, error.key) == ("c", "r1")
    for _ in range(2):  # as often as one likes
        agent.memory_for().append("c", error.messages, key=error.key)
    assert texts(store.get("c")) == ["1+2?", "", "3", "three"]


@both
def test_an_error_of_the_model_is_not_hidden_by_one_of_the_store(caller, caplog):
    store = Failing(failures=9)
    agent = Agent(FakeService([ProviderUnreachable("x")]), memory={"store": store})
    with pytest.raises(ProviderUnreachable):
        caller.call(agent, "hi", "c")
    assert "could not be stored" in caplog.text


@both
def test_a_run_attempted_again_under_its_id_has_one_live_turn(store, caller):
    """An external retry: the user message must not stand there twice."""
    service = FakeService(["first", "first", "second"])
    agent = Agent(service, memory={"store": store})
    for _ in range(2):
        caller.call(agent, "hi", "c", run_id="job-7")
    assert texts(store.get("c")) == ["hi", "first"]
    caller.call(agent, "hi", "c", run_id="job-7")
    assert texts(view(store)) == ["hi", "second"]


@both
def test_answers_that_go_back_and_forth_leave_the_last_one_live(store, caller):
    service = FakeService(["a", "b", "a", "next"])
    agent = Agent(service, memory={"store": store})
    for _ in range(3):
        caller.call(agent, "hi", "c", run_id="job-7")
    assert texts(view(store)) == ["hi", "a"]
    caller.call(agent, "and?", "c")
    assert texts(view(store)) == ["hi", "a", "and?", "next"]


@both
def test_an_attempt_that_fails_leaves_the_earlier_answer(store, caller):
    service = FakeService(["first", ProviderUnreachable("x")])
    agent = Agent(service, memory={"store": store})
    caller.call(agent, "hi", "c", run_id="job-7")
    with pytest.raises(ProviderUnreachable):
        caller.call(agent, "hi", "c", run_id="job-7")
    assert texts(store.get("c")) == ["hi", "first"]


@both
def test_an_answer_too_large_to_be_stored_says_so(store, caller, settings):
    settings.CONVMEM = {"MAX_MESSAGE_BYTES": 100}
    agent = Agent(FakeService(["x" * 101]), memory={"store": store})
    with pytest.raises(MessageTooLarge, match="101 bytes"):
        caller.call(agent, "hi", "c")
    assert [(m.text, m.status) for m in store.get("c")] == [("hi", "failed")]


@both
def test_a_run_that_broke_off_and_is_attempted_again_has_one_live_turn(store, caller):
    service = FakeService([ProviderUnreachable("x"), "up", "next"])
    agent = Agent(service, memory={"store": store})
    with pytest.raises(ProviderUnreachable):
        caller.call(agent, "hi", "c", run_id="job-7")
    caller.call(agent, "hi", "c", run_id="job-7")
    caller.call(agent, "and?", "c")
    assert texts(view(store)) == ["hi", "up", "and?", "next"]


# --- leaving at any point ---


async def slow(n: int):
    """Wait a moment."""
    await asyncio.sleep(0)
    return n


@pytest.mark.parametrize(
    ("drive", "leaving"),
    [(run, KeyboardInterrupt()), (drive_async(arun), asyncio.CancelledError())],
    ids=["sync", "async"],
)
@pytest.mark.parametrize("streaming", [False, True], ids=["run", "stream"])
def test_leaving_an_agent_at_every_operation_leaves_a_valid_history(
    drive, leaving, streaming
):
    def make():
        store = LocalStore(namespace=uuid.uuid4().hex)
        script = [
            calls(("add", {"a": 1, "b": 2}), ("slow", {"n": 3}), ("nope", {})),
            calls(("add", {"a": 3, "b": 3}), text="Let me add."),
            "Six it is.",
        ]
        agent = Agent(FakeService(script), memory={"store": store}, tools=[add, slow])

        def tell():
            kept = store.get("c")
            service = FakeService(["fine"])
            Agent(service, memory={"store": store}).run("and?", "c")
            return kept, service.requests[0].messages

        return agent.flow("go", "c", streaming=streaming), tell

    for told, (kept, shown) in cut_everywhere(make, drive=drive, leaving=leaving):
        assert kept[0].text == "go", told  # the prompt is never lost
        assert roles(kept).count("user") == 1, told
        assert violations(kept) == [], told
        assert violations(shown) == [], told
        whole = kept[-1].text == "Six it is." and kept[-1].status == "complete"
        if len(kept) == 1:
            assert kept[0].status == "failed", told
        elif not whole:
            assert kept[0].status == "incomplete", told


async def test_cancelling_inside_a_tool_keeps_the_other_results(store):
    waiting = asyncio.Event()

    async def endless():
        waiting.set()
        await asyncio.Event().wait()

    service = FakeService([calls(("slow", {"n": 3}), ("endless", {}))])
    agent = Agent(service, memory={"store": store}, tools=[slow, endless])
    task = asyncio.create_task(agent.arun("go", "c"))
    await waiting.wait()
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    kept = store.get("c")
    assert violations(kept) == []
    assert [m.is_error for m in kept if m.role == "tool"] == [False, True]


# --- the database ---


@pytest.mark.django_db(transaction=True)
@both
def test_the_default_memory_is_the_database(caller):
    service = FakeService(["a", "b"])
    agent = Agent(service)
    caller.call(agent, "one", "c")
    caller.call(agent, "two", "c")
    assert sent(service, 1) == ["one", "a", "two"]
    assert texts(DatabaseStore().get("c")) == ["one", "a", "two", "b"]


@pytest.mark.django_db(transaction=True)
def test_a_run_inside_an_open_transaction_is_refused(settings, store):
    service = FakeService(["allowed", "allowed"])
    settings.CONVMEM = {"ALLOW_RUN_IN_TRANSACTION": False}
    agent = Agent(service)
    with transaction.atomic():
        with pytest.raises(RunInTransaction, match=r"outside of atomic\(\)"):
            agent.run("hi", "c")
        # The database is not touched by these:
        assert Agent(service, memory={"store": store}).run("hi", "c").text == "allowed"
    assert DatabaseStore().get("c") == []
    settings.CONVMEM = {"ALLOW_RUN_IN_TRANSACTION": True}
    with transaction.atomic():
        assert agent.run("hi", "c").text == "allowed"


@pytest.mark.django_db(transaction=True)
def test_the_connection_is_given_back_before_the_model_is_awaited(monkeypatch):
    """By Django's own rule: here its age makes it obsolete."""
    held = []
    connection = connections["default"]

    def model(request):
        held.append(closed.pop() if closed else "kept")
        return "ok"

    closed = []
    monkeypatch.setattr(
        type(connection),
        "close_if_unusable_or_obsolete",
        lambda self: closed.append("released"),
    )
    Agent(FakeService([model])).run("hi", "c")
    assert held == ["released"]
