"""Leaving at any point leaves a valid conversation, with nothing lost or doubled."""

from __future__ import annotations

import asyncio
import itertools
import threading
import uuid

import pytest

from convmem.kernel.context import Context
from convmem.kernel.flow import arun, run
from convmem.kernel.kernel import Kernel
from convmem.memory import DefaultMemoryProvider, violations
from convmem.memory.filter import memory_filter
from convmem.messages import Message
from convmem.stores.local import LocalStore
from convmem.testing.service import FakeService
from tests.kernel.cutting import cut_everywhere, drive_async
from tests.kernel.tools import add, calls, roles, texts

worlds = pytest.mark.parametrize(
    ("drive", "leaving"),
    [
        (run, KeyboardInterrupt()),
        (drive_async(arun), asyncio.CancelledError()),
    ],
    ids=["sync", "async"],
)
streaming = pytest.mark.parametrize("streaming", [False, True], ids=["call", "stream"])


async def slow(n: int):
    """Wait a moment."""
    await asyncio.sleep(0)
    return n


def script():
    return [
        calls(("add", {"a": 1, "b": 2}), ("slow", {"n": 3}), ("nope", {})),
        calls(("add", {"a": 3, "b": 3}), text="Let me add."),
        "Six it is.",
    ]


def check(kept, told, ran):
    """Check what every cut must leave behind."""
    place = f"cut {told}: {[(m.role, m.text, m.status) for m in kept]}"
    assert violations(kept) == [], place
    assert roles(kept).count("user") <= 1, place
    positions = [m.position for m in kept]
    assert positions == sorted(set(positions)), place
    # A result that a tool really gave is not lost once it was known.
    results = [m for m in kept if m.role == "tool" and not m.is_error]
    assert len(results) <= ran[0], place


def observed(store):
    """Return kernel's tools that count how often they ran, and the counter."""
    ran = [0]

    def counted_add(a: int, b: int) -> int:
        """Add two numbers."""
        ran[0] += 1
        return add(a, b)

    async def counted_slow(n: int):
        """Wait a moment."""
        ran[0] += 1
        return await slow(n)

    counted_add.__name__, counted_slow.__name__ = "add", "slow"
    return [counted_add, counted_slow], ran


@worlds
@streaming
def test_leaving_a_kernel_at_every_operation_leaves_a_valid_history(
    drive, leaving, streaming
):
    last = {}

    def make():
        store = LocalStore(namespace=uuid.uuid4().hex)
        tools, ran = observed(store)
        kernel = Kernel(FakeService(script()), [memory_filter(store)], tools)
        flow = kernel.flow(
            "go", Context(conversation_id="c"), "Prompt", streaming=streaming
        )
        last.update(store=store, ran=ran)
        return flow, lambda: store.get("c")

    seen = set()
    for told, kept in cut_everywhere(make, drive=drive, leaving=leaving):
        check(kept, told, last["ran"])
        assert "Prompt" not in texts(kept)
        seen.add(tuple(roles(kept)))
        next_turn(last["store"])
    assert () in seen or ("user", "assistant") in seen
    assert ("user", *["assistant", "tool", "tool", "tool"]) in seen


def next_turn(store):
    """Go on after the cut: the model is sent a valid view and answers."""
    service = FakeService(["fine"])
    kernel = Kernel(service, [memory_filter(store)])
    assert kernel.invoke("and?", context=Context(conversation_id="c")).text == "fine"
    assert violations(service.requests[0].messages) == []
    assert service.requests[0].messages[-1].text == "and?"
    shown = service.requests[0].messages
    assert roles(shown).count("user") <= 2
    pairs = itertools.pairwise(roles(shown))
    assert ("user", "user") not in set(pairs)


@worlds
def test_leaving_an_ephemeral_run_at_every_operation_leaves_nothing(drive, leaving):
    def make():
        store = LocalStore(namespace=uuid.uuid4().hex)
        names = []
        original = store.add

        def spying(name, messages, *, key=None):
            names.append(name)
            return original(name, messages, key=key)

        store.add = spying
        kernel = Kernel(FakeService(script()), [memory_filter(store)], [add, slow])
        flow = kernel.flow("go")
        return flow, lambda: [m for name in names for m in store.get(name)]

    for told, kept in cut_everywhere(make, drive=drive, leaving=leaving):
        assert kept == [], told


@worlds
def test_leaving_and_attempting_the_run_again_doubles_nothing(drive, leaving):
    """The same run id after a cut: one user message, one live answer."""
    context = Context(conversation_id="c", run_id="job")

    def make():
        store = LocalStore(namespace=uuid.uuid4().hex)
        kernel = Kernel(FakeService(["a long answer"]), [memory_filter(store)])

        def tell():
            again = Kernel(FakeService(["another answer"]), [memory_filter(store)])
            again.invoke("go", context=context)
            provider = DefaultMemoryProvider(store)
            return provider.prepare("c", provider.history("c")), store.get("c")

        return kernel.flow("go", context), tell

    for told, (shown, kept) in cut_everywhere(make, drive=drive, leaving=leaving):
        assert texts(shown) == ["go", "another answer"], told
        assert roles(kept).count("user") == 1, told


# --- inside a tool ---


async def test_cancelling_inside_a_tool_keeps_the_other_results():
    """Cancellation is no ordinary exception: the history stays valid all the same."""
    store = LocalStore(namespace=uuid.uuid4().hex)
    waiting = asyncio.Event()

    async def endless():
        waiting.set()
        await asyncio.Event().wait()

    answer = calls(("slow", {"n": 3}), ("endless", {}))
    kernel = Kernel(FakeService([answer]), [memory_filter(store)], [slow, endless])
    task = asyncio.create_task(
        kernel.ainvoke("go", context=Context(conversation_id="c"))
    )
    await waiting.wait()
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    kept = store.get("c")
    assert violations(kept) == []
    assert [(m.text, m.is_error) for m in kept[2:]] == [
        ("3", False),
        ("No result: the run ended before this call was finished.", True),
    ]


@pytest.mark.parametrize("reply", ["same", "other"])
def test_a_run_cut_inside_a_tool_and_attempted_again_shows_the_real_result(reply):
    """The error results that the cut left behind are superseded."""
    store = LocalStore(namespace=uuid.uuid4().hex)
    context = Context(conversation_id="c", run_id="job")
    stopping = [True, True]

    def work(n: int):
        if stopping:
            stopping.pop()
            raise KeyboardInterrupt
        return f"result {n}"

    first = calls(("work", {"n": 1}), ("work", {"n": 2}))
    other = calls(("work", {"n": 3}))
    for _ in range(2):
        kernel = Kernel(FakeService([first]), [memory_filter(store)], [work])
        with pytest.raises(KeyboardInterrupt):
            kernel.invoke("go", context=context)
    service = FakeService([first if reply == "same" else other, "done"])
    result = Kernel(service, [memory_filter(store)], [work]).invoke(
        "go", context=context
    )
    assert result.text == "done"
    numbers = [1, 2] if reply == "same" else [3]
    results = [f"result {n}" for n in numbers]
    assert texts(service.requests[1].messages) == ["go", "", *results]
    service = FakeService(["fine"])
    Kernel(service, [memory_filter(store)]).invoke(
        "and?", context=Context(conversation_id="c")
    )
    assert texts(service.requests[0].messages) == ["go", "", *results, "done", "and?"]


def test_ctrl_c_inside_the_only_tool_answers_its_call():
    store = LocalStore(namespace=uuid.uuid4().hex)

    def stop():
        raise KeyboardInterrupt

    kernel = Kernel(FakeService([calls(("stop", {}))]), [memory_filter(store)], [stop])
    with pytest.raises(KeyboardInterrupt):
        kernel.invoke("go", context=Context(conversation_id="c"))
    kept = store.get("c")
    assert roles(kept) == ["user", "assistant", "tool"]
    assert kept[2].is_error
    assert violations(kept) == []


async def test_cancelling_while_the_store_writes_stores_once():
    """The write goes on in its thread; nobody knows whether it was done."""
    store = LocalStore(namespace=uuid.uuid4().hex)
    writing = asyncio.Event()

    async def aadd(name, messages, *, key=None):
        stored = LocalStore.add(store, name, messages, key=key)
        if messages[0].role == "assistant":
            writing.set()
            await asyncio.Event().wait()
        return stored

    store.aadd = aadd
    kernel = Kernel(FakeService(["answer"]), [memory_filter(store)])
    task = asyncio.create_task(
        kernel.ainvoke("go", context=Context(conversation_id="c"))
    )
    await writing.wait()
    del store.aadd
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert texts(store.get("c")) == ["go", "answer"]
    assert store.get("c")[1].status == "complete"


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
async def test_cancelling_while_a_thread_writes_stores_once(role):
    """The thread cannot be stopped: what it writes must not be written again."""
    writing, go_on = threading.Event(), threading.Event()

    class Slow(LocalStore):
        def add(self, conversation_id, messages, *, key=None):
            if messages[0].role == role and not go_on.is_set():
                writing.set()
                go_on.wait(5)
            return super().add(conversation_id, messages, key=key)

    store = Slow(namespace=uuid.uuid4().hex)
    service = FakeService([calls(("add", {"a": 1, "b": 2})), "three"])
    kernel = Kernel(service, [memory_filter(store)], [add])
    task = asyncio.create_task(
        kernel.ainvoke("go", context=Context(conversation_id="c"))
    )
    await asyncio.to_thread(writing.wait, 5)
    task.cancel()
    await asyncio.sleep(0.01)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    kept = store.get("c")
    assert violations(kept) == []
    assert roles(kept).count("user") == 1
    assert roles(kept).count("tool") == (0 if role == "user" else 1)


def test_a_conversation_goes_on_after_many_cuts():
    store = LocalStore(namespace=uuid.uuid4().hex)
    context = Context(conversation_id="c")
    for count in range(1, 8):
        kernel = Kernel(FakeService(["abcdefgh"], chunk=2), [memory_filter(store)])
        with kernel.stream(f"try {count}", context=context) as iteration:
            for _ in range(min(count, 4)):
                next(iteration)
    service = FakeService(["end"])
    Kernel(service, [memory_filter(store)]).invoke("last", context=context)
    sent = service.requests[0].messages
    assert violations(sent) == []
    assert Message.user("last").text == sent[-1].text
    assert [m.text for m in sent if m.role == "assistant"][:2] == ["ab", "abcd"]
