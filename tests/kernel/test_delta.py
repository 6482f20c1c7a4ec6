"""The kernel with a memory filter: what is stored, what is seen, and once only."""

from __future__ import annotations

import uuid

import pytest
from django.db import transaction

from convmem.exceptions import (
    IdempotencyConflict,
    InvalidFilter,
    InvalidMessage,
    MixedMemory,
    OwnerMismatch,
    ProviderError,
    ProviderUnreachable,
    RoundsExceeded,
    RunInTransaction,
    StoreBusy,
    UnknownMemory,
)
from convmem.kernel.context import Context
from convmem.kernel.kernel import Kernel
from convmem.memory import DefaultMemoryProvider, MemoryProvider, violations
from convmem.memory.filter import NO_ANSWER, memory_filter
from convmem.messages import Message
from convmem.owners import Owner
from convmem.stores.database import DatabaseStore
from convmem.stores.local import LocalStore
from convmem.testing.service import BrokenReply, FakeService
from tests.kernel.tools import CALLERS, add, calls, roles, texts

both = pytest.mark.parametrize("caller", CALLERS, ids=lambda c: c.name)
HERE = Context(conversation_id="c")


@pytest.fixture
def store():
    return LocalStore(namespace=uuid.uuid4().hex)


def view(store, name="c"):
    provider = DefaultMemoryProvider(store)
    return provider.prepare(name, provider.history(name))


def sent(service, number):
    return texts(service.requests[number].messages)


# --- what is stored and seen ---


@both
def test_the_second_invocation_knows_what_the_first_said(store, caller):
    service = FakeService(["Hello Ada.", "You are Ada."])
    kernel = Kernel(service, [memory_filter(store)])
    caller.call(kernel, "I am Ada.", context=HERE)
    caller.call(kernel, "Who am I?", context=HERE)
    assert sent(service, 1) == ["I am Ada.", "Hello Ada.", "Who am I?"]
    assert texts(store.get("c")) == [
        "I am Ada.",
        "Hello Ada.",
        "Who am I?",
        "You are Ada.",
    ]


@both
def test_each_round_passes_only_the_delta_and_the_filter_expands_it(store, caller):
    passed = []

    def look(request, call_next):
        passed.append(roles(request.messages))
        return (yield from call_next(request))

    service = FakeService([calls(("add", {"a": 1, "b": 2})), "three"])
    kernel = Kernel(service, [look, memory_filter(store)], [add])
    result = caller.call(kernel, "1+2?", context=HERE)
    assert passed == [["user"], ["tool"]]
    assert roles(service.requests[1].messages) == ["user", "assistant", "tool"]
    assert roles(store.get("c")) == ["user", "assistant", "tool", "assistant"]
    assert texts(result.messages) == texts(store.get("c"))


@both
def test_the_delta_is_stored_before_the_model_is_asked(store, caller):
    seen = []

    def model(request):
        seen.extend(texts(store.get("c")))
        return "ok"

    kernel = Kernel(FakeService([model]), [memory_filter(store)])
    caller.call(kernel, "first", context=HERE)
    assert seen == ["first"]


@both
def test_two_turns_of_one_reply_are_four_messages(store, caller):
    """History that was read is not saved again."""
    kernel = Kernel(FakeService(["a", "b"]), [memory_filter(store)])
    caller.call(kernel, "one", context=HERE)
    caller.call(kernel, "two", context=HERE)
    assert texts(store.get("c")) == ["one", "a", "two", "b"]


@both
def test_a_store_shows_the_whole_history_repaired(store, caller):
    store.add("c", [Message.user("old"), calls(("add", {"a": 1, "b": 1}))])
    service = FakeService(["ok"])
    caller.call(Kernel(service, [memory_filter(store)]), "new", context=HERE)
    assert violations(service.requests[0].messages) == []
    assert roles(store.get("c"))[:2] == ["user", "assistant"]  # untouched


@both
def test_a_provider_shows_its_view_and_the_store_keeps_all(store, caller):
    service = FakeService([f"a{n}" for n in range(4)])
    provider = DefaultMemoryProvider(store, window=3)
    kernel = Kernel(service, [memory_filter(provider)])
    for number in range(4):
        caller.call(kernel, f"u{number}", context=HERE)
    assert sent(service, 3) == ["u2", "a2", "u3"]
    assert len(store.get("c")) == 8


class Own(MemoryProvider):
    """A provider of a project: four verbs, no keys, no positions."""

    def __init__(self):
        self.kept = {}
        self.prepared = 0

    def history(self, conversation_id):
        return list(self.kept.get(conversation_id, []))

    def append(self, conversation_id, messages, *, key=None):
        self.kept.setdefault(conversation_id, []).extend(messages)
        return list(messages)

    def prepare(self, conversation_id, messages):
        self.prepared += 1
        return messages[-2:]

    def clear(self, conversation_id):
        return len(self.kept.pop(conversation_id, []))


@both
def test_a_provider_that_writes_only_the_four_verbs_works(caller):
    provider = Own()
    service = FakeService(["a", calls(("add", {"a": 1, "b": 2})), "three"])
    kernel = Kernel(service, [memory_filter(provider)], [add])
    caller.call(kernel, "one", context=HERE)
    caller.call(kernel, "two", context=HERE)
    assert provider.prepared == 3
    assert texts(provider.kept["c"]) == ["one", "a", "two", "", "3", "three"]
    assert sent(service, 1) == ["a", "two"]


@both
def test_system_prompts_stand_inside_memory_and_are_never_stored(store, caller):
    service = FakeService(["a", "b"])
    outside, inside = [], []

    def outer(request, call_next):
        outside.append(texts(request.messages))
        return (yield from call_next(request))

    def inner(request, call_next):
        inside.append(texts(request.messages))
        return (yield from call_next(request))

    kernel = Kernel(service, [outer, memory_filter(store), inner])
    caller.call(kernel, "one", context=HERE, system_prompts=["S1"])
    caller.call(kernel, "two", context=HERE, system_prompts=["S2"])
    assert outside == [["one"], ["two"]]
    assert inside == [["S1", "one"], ["S2", "one", "a", "two"]]
    assert "system" not in roles(store.get("c"))


@both
def test_only_the_callers_newest_system_prompt_is_seen(store, caller):
    """No old prompt lives on."""
    service = FakeService(["a", "b"])
    kernel = Kernel(service, [memory_filter(store)])
    caller.call(kernel, "one", context=HERE, system_prompts="S1")
    caller.call(kernel, "two", context=HERE, system_prompts="S2")
    assert [t for t in sent(service, 1) if t.startswith("S")] == ["S2"]


@both
def test_a_system_message_that_was_passed_in_is_stored_like_any_other(store, caller):
    kernel = Kernel(FakeService(["a"]), [memory_filter(store)])
    caller.call(kernel, [Message.system("rules"), "hi"], context=HERE)
    assert roles(store.get("c")) == ["system", "user", "assistant"]


@both
def test_a_stream_stores_what_a_call_stores(store, caller):
    service = FakeService([calls(("add", {"a": 1, "b": 2})), "three"], chunk=2)
    kernel = Kernel(service, [memory_filter(store)], [add])
    _, result = caller.stream(kernel, "1+2?", context=HERE)
    assert texts(store.get("c")) == ["1+2?", "", "3", "three"]
    assert result.text == "three"


# --- two memories, owners, forms ---


def test_two_memory_filters_in_one_list_are_refused(store):
    with pytest.raises(MixedMemory, match="2 memory filters"):
        Kernel(FakeService(), [memory_filter(store), memory_filter(store)])


def test_what_is_no_memory_is_refused():
    for wrong in (None, 3, {"window": 3}, LocalStore):
        with pytest.raises(UnknownMemory, match="takes a store, a memory provider"):
            memory_filter(wrong)


def test_a_memory_may_be_an_alias(settings):
    namespace = uuid.uuid4().hex
    settings.CONVMEM = {
        "STORES": {
            "default": {
                "BACKEND": "convmem.stores.local.LocalStore",
                "OPTIONS": {"NAMESPACE": namespace},
            }
        }
    }
    Kernel(FakeService(["a"]), [memory_filter("default")]).invoke("hi", context=HERE)
    assert texts(LocalStore(namespace=namespace).get("c")) == ["hi", "a"]


@both
def test_each_owner_has_a_conversation_of_their_own(store, caller):
    ada, bob = Owner(name="user", id="1"), Owner(name="user", id="2")
    service = FakeService(["to Ada", "to Bob"])
    kernel = Kernel(service, [memory_filter(store)])
    caller.call(kernel, "Ada here", context=HERE.replace(owner=ada))
    caller.call(kernel, "Bob here", context=HERE.replace(owner=bob))
    assert sent(service, 1) == ["Bob here"]
    assert texts(store.for_owner(ada).get("c")) == ["Ada here", "to Ada"]
    assert store.get("c") == []


@both
def test_a_context_of_another_owner_is_an_error(store, caller):
    ada, bob = Owner(name="user", id="1"), Owner(name="user", id="2")
    service = FakeService(["never"])
    kernel = Kernel(service, [memory_filter(store.for_owner(ada))])
    with pytest.raises(OwnerMismatch):
        caller.call(kernel, "hi", context=HERE.replace(owner=bob))
    assert service.requests == []
    assert store.for_owner(ada).get("c") == store.for_owner(bob).get("c") == []


def test_a_provider_that_knows_no_owners_refuses_one():
    kernel = Kernel(FakeService(), [memory_filter(Own())])
    with pytest.raises(OwnerMismatch, match="does not keep owners apart"):
        kernel.invoke("hi", context=HERE.replace(owner=Owner(name="user", id="1")))


# --- ephemeral ---


class Recording(LocalStore):
    """Remembers which conversations were written to."""

    def __init__(self, **options):
        super().__init__(**options)
        self.names = set()

    def add(self, conversation_id, messages, *, key=None):
        self.names.add(conversation_id)
        return super().add(conversation_id, messages, key=key)


@pytest.fixture
def recording():
    return Recording(namespace=uuid.uuid4().hex)


def gone(store):
    assert len(store.names) == 1
    return store.get(*store.names) == []


@both
def test_without_an_id_the_conversation_is_cleared_at_the_end(recording, caller):
    service = FakeService([calls(("add", {"a": 1, "b": 2})), "three"])
    kernel = Kernel(service, [memory_filter(recording)], [add])
    result = caller.call(kernel, "1+2?")
    assert result.text == "three"
    assert result.context.conversation_id is None
    assert roles(service.requests[1].messages) == ["user", "assistant", "tool"]
    assert gone(recording)


@both
def test_without_an_id_it_is_cleared_after_a_failure(recording, caller):
    service = FakeService([ProviderUnreachable("down")])
    with pytest.raises(ProviderUnreachable):
        caller.call(Kernel(service, [memory_filter(recording)]), "hi")
    assert gone(recording)


@both
def test_without_an_id_it_is_cleared_when_the_caller_leaves(recording, caller):
    service = FakeService(["a long answer"], chunk=2)
    kernel = Kernel(service, [memory_filter(recording)])
    caller.stream(kernel, "hi", leave_after=2)
    assert gone(recording)


@both
def test_a_failure_to_clear_does_not_cost_the_answer(caller, caplog):
    class Stuck(LocalStore):
        def clear(self, conversation_id):
            raise StoreBusy("locked")

    store = Stuck(namespace=uuid.uuid4().hex)
    assert caller.call(Kernel(FakeService(["ok"]), [memory_filter(store)]), "x").text
    assert "could not be tidied up" in caplog.text


# --- retrying filters ---


def retry_outside(request, call_next):
    """Try the whole round again, memory included."""
    try:
        return (yield from call_next(request))
    except ProviderError:
        return (yield from call_next(request))


def again(request, call_next):
    """Ask twice whatever the first answer was."""
    yield from call_next(request)
    return (yield from call_next(request))


@both
@pytest.mark.parametrize("place", ["outside", "inside"])
def test_a_retry_after_an_error_stores_the_delta_and_one_reply(store, caller, place):
    memory = memory_filter(store)
    filters = [retry_outside, memory] if place == "outside" else [memory, retry_outside]
    service = FakeService([ProviderUnreachable("down"), "up"])
    assert caller.call(Kernel(service, filters), "hi", context=HERE).text == "up"
    assert texts(store.get("c")) == ["hi", "up"]
    assert sent(service, 0) == sent(service, 1) == ["hi"]


@both
def test_a_retry_after_a_broken_stream_leaves_no_partial_answer(store, caller):
    broken = BrokenReply("half an ans", ProviderUnreachable("cut"))
    service = FakeService([broken, "a whole one"], chunk=4)
    kernel = Kernel(service, [retry_outside, memory_filter(store)])
    caller.stream(kernel, "hi", context=HERE)
    assert texts(store.get("c")) == ["hi", "a whole one"]


@both
def test_a_round_asked_again_outside_with_the_same_reply_adds_nothing(store, caller):
    service = FakeService(["same", "same"])
    kernel = Kernel(service, [again, memory_filter(store)])
    assert caller.call(kernel, "hi", context=HERE).text == "same"
    assert texts(store.get("c")) == ["hi", "same"]
    assert sent(service, 1) == ["hi"]


@both
def test_a_round_asked_again_outside_with_another_reply_supersedes(store, caller):
    service = FakeService(["first", "second"])
    kernel = Kernel(service, [again, memory_filter(store)])
    assert caller.call(kernel, "hi", context=HERE).text == "second"
    kept = store.get("c")
    assert texts(kept) == ["hi", "first", "second"]
    assert kept[2].supersedes == (kept[1].position,)
    assert texts(view(store)) == ["hi", "second"]
    assert sent(service, 1) == ["hi"]


@both
@pytest.mark.parametrize("second", ["same", "other"])
def test_a_round_asked_again_inside_memory_stores_the_last_reply(store, caller, second):
    service = FakeService(["same", second])
    kernel = Kernel(service, [memory_filter(store), again])
    assert caller.call(kernel, "hi", context=HERE).text == second
    assert texts(store.get("c")) == ["hi", second]


@both
def test_replies_that_go_back_and_forth_leave_the_last_one_live(store, caller):
    def four_times(request, call_next):
        for _ in range(3):
            yield from call_next(request)
        return (yield from call_next(request))

    service = FakeService(["a", "b", "a", "a"])
    kernel = Kernel(service, [four_times, memory_filter(store)])
    assert caller.call(kernel, "hi", context=HERE).text == "a"
    assert texts(view(store)) == ["hi", "a"]
    assert roles(store.get("c")).count("user") == 1


@both
def test_a_tool_round_asked_again_supersedes_its_calls(store, caller):
    first, second = calls(("add", {"a": 1, "b": 1})), calls(("add", {"a": 2, "b": 2}))
    service = FakeService([first, second, "four", "four"])
    kernel = Kernel(service, [again, memory_filter(store)], [add])
    result = caller.call(kernel, "2+2?", context=HERE)
    assert [m.text for m in result.messages] == ["2+2?", "", "4", "four"]
    shown = view(store)
    assert roles(shown) == ["user", "assistant", "tool", "assistant"]
    assert shown[1].tool_calls == second.tool_calls
    assert violations(shown) == []


@both
def test_a_run_attempted_again_under_its_id_stores_the_user_message_once(store, caller):
    """An external retry: nothing of the first attempt is known in the process."""
    service = FakeService(["first", "second", "second"])
    context = HERE.replace(run_id="job-7")
    for _ in range(3):
        kernel = Kernel(service, [memory_filter(store)])
        caller.call(kernel, "hi", context=context)
    assert roles(store.get("c")) == ["user", "assistant", "assistant"]
    assert texts(view(store)) == ["hi", "second"]
    assert sent(service, 1) == ["hi"]


@both
def test_another_delta_under_the_same_round_is_a_conflict(store, caller):
    def amend(request, call_next):
        yield from call_next(request)
        more = (*request.messages, Message.user("in JSON please"))
        return (yield from call_next(request.replace(messages=more)))

    kernel = Kernel(FakeService(["a", "b"]), [amend, memory_filter(store)])
    with pytest.raises(IdempotencyConflict, match="must send the same ones"):
        caller.call(kernel, "hi", context=HERE)
    assert texts(store.get("c")) == ["hi", "a"]


@both
def test_a_provider_without_keys_stores_once_in_one_run_too(caller):
    provider = Own()
    service = FakeService([ProviderUnreachable("down"), "up"])
    kernel = Kernel(service, [retry_outside, memory_filter(provider)])
    caller.call(kernel, "hi", context=HERE)
    assert texts(provider.kept["c"]) == ["hi", "up"]


# --- failures ---


@both
def test_a_model_that_never_answers_loses_no_prompt(store, caller):
    kernel = Kernel(FakeService([ProviderUnreachable("x")]), [memory_filter(store)])
    with pytest.raises(ProviderUnreachable):
        caller.call(kernel, "precious", context=HERE)
    kept = store.get("c")
    assert texts(kept) == ["precious", NO_ANSWER]
    assert kept[1].status == "failed"


@both
def test_a_failed_turn_is_left_out_of_the_next_view_unless_asked_for(store, caller):
    service = FakeService([ProviderUnreachable("x"), "fine", "fine"])
    kernel = Kernel(service, [memory_filter(store)])
    with pytest.raises(ProviderUnreachable):
        caller.call(kernel, "first", context=HERE)
    caller.call(kernel, "second", context=HERE)
    assert sent(service, 1) == ["second"]
    asking = DefaultMemoryProvider(store, keep_failed=True)
    caller.call(Kernel(service, [memory_filter(asking)]), "third", context=HERE)
    assert sent(service, 2) == ["first", "second", "fine", "third"]


@both
def test_a_broken_stream_keeps_the_partial_answer_marked(store, caller):
    broken = BrokenReply("half an answer", ProviderUnreachable("cut"))
    kernel = Kernel(FakeService([broken], chunk=5), [memory_filter(store)])
    with pytest.raises(ProviderUnreachable):
        caller.stream(kernel, "hi", context=HERE)
    kept = store.get("c")
    assert texts(kept) == ["hi", "half an answer"]
    assert kept[1].status == "incomplete"


@both
def test_leaving_a_stream_keeps_what_came_marked(store, caller):
    kernel = Kernel(FakeService(["abcdef"], chunk=2), [memory_filter(store)])
    caller.stream(kernel, "hi", context=HERE, leave_after=2)
    kept = store.get("c")
    assert texts(kept) == ["hi", "abcd"]
    assert kept[1].status == "incomplete"


@both
def test_tool_calls_that_had_half_arrived_are_not_stored(store, caller):
    answer = calls(("add", {"a": 1, "b": 2}), text="Let me see.")
    kernel = Kernel(FakeService([answer], chunk=4), [memory_filter(store)], [add])
    events, _ = caller.stream(kernel, "hi", context=HERE, leave_after=6)
    kept = store.get("c")
    assert kept[1].text == "Let me see."
    assert kept[1].tool_calls == ()
    assert violations(kept) == []


@both
def test_a_store_that_fails_on_the_results_does_not_run_the_tool_again(caller):
    """The tool has had its effect: only the write is tried again."""
    ran = []

    def order():
        ran.append(True)
        return "ordered"

    class FailsOnce(LocalStore):
        failures = 1

        def add(self, conversation_id, messages, *, key=None):
            if messages[0].role == "tool" and self.failures:
                self.failures -= 1
                raise StoreBusy("locked")
            return super().add(conversation_id, messages, key=key)

    def patient(request, call_next):
        try:
            return (yield from call_next(request))
        except StoreBusy:
            return (yield from call_next(request))

    store = FailsOnce(namespace=uuid.uuid4().hex)
    service = FakeService([calls(("order", {})), "done"])
    kernel = Kernel(service, [patient, memory_filter(store)], [order])
    assert caller.call(kernel, "order it", context=HERE).text == "done"
    assert ran == [True]
    assert texts(store.get("c")) == ["order it", "", "ordered", "done"]


@both
def test_too_many_rounds_keep_what_was_stored_and_leave_no_call_open(store, caller):
    service = FakeService([calls(("add", {"a": 1, "b": 1}))], repeat=True)
    kernel = Kernel(service, [memory_filter(store)], [add], max_rounds=2)
    with pytest.raises(RoundsExceeded):
        caller.call(kernel, "go", context=HERE)
    kept = store.get("c")
    assert roles(kept) == ["user", "assistant", "tool", "assistant", "tool"]
    assert [m.is_error for m in kept if m.role == "tool"] == [False, True]
    assert violations(kept) == []


@both
def test_a_filter_that_fails_after_the_reply_was_stored_leaves_no_call_open(
    store, caller
):
    def broken(request, call_next):
        yield from call_next(request)
        raise KeyError("bug")

    service = FakeService([calls(("add", {"a": 1, "b": 1}))])
    kernel = Kernel(service, [broken, memory_filter(store)], [add])
    with pytest.raises(KeyError):
        caller.call(kernel, "go", context=HERE)
    kept = store.get("c")
    assert roles(kept) == ["user", "assistant", "tool"]
    assert kept[2].is_error
    assert violations(kept) == []


@both
def test_a_round_asked_again_that_fails_leaves_no_call_open(store, caller):
    service = FakeService([calls(("add", {"a": 1, "b": 1})), ProviderError("down")])
    kernel = Kernel(service, [again, memory_filter(store)], [add])
    with pytest.raises(ProviderError):
        caller.call(kernel, "go", context=HERE)
    assert violations(store.get("c")) == []
    assert roles(store.get("c")) == ["user", "assistant", "tool"]


@both
def test_a_store_that_is_down_stores_nothing_and_says_so(caller):
    class Down(LocalStore):
        def add(self, conversation_id, messages, *, key=None):
            raise StoreBusy("locked")

    service = FakeService(["never"])
    store = Down(namespace=uuid.uuid4().hex)
    with pytest.raises(StoreBusy):
        caller.call(Kernel(service, [memory_filter(store)]), "hi", context=HERE)
    assert service.requests == []


class FailsOn(LocalStore):
    """Fails to write messages of one role, as often as told."""

    def __init__(self, role, failures=1):
        super().__init__(namespace=uuid.uuid4().hex)
        self.role, self.failures = role, failures

    def add(self, conversation_id, messages, *, key=None):
        if messages[0].role == self.role and self.failures:
            self.failures -= 1
            raise StoreBusy("locked")
        return super().add(conversation_id, messages, key=key)


@both
def test_a_reply_that_could_not_be_stored_leaves_no_result_behind(caller):
    store = FailsOn("assistant")
    service = FakeService([calls(("add", {"a": 1, "b": 2}), text="Let me add.")])
    kernel = Kernel(service, [memory_filter(store)], [add])
    with pytest.raises(StoreBusy):
        caller.call(kernel, "1+2?", context=HERE)
    kept = store.get("c")
    assert [(m.text, m.status) for m in kept] == [
        ("1+2?", "complete"),
        ("Let me add.", "incomplete"),
    ]
    assert violations(kept) == []


@both
def test_results_that_could_not_be_stored_are_stored_when_the_run_has_failed(caller):
    store = FailsOn("tool")
    service = FakeService([calls(("add", {"a": 1, "b": 2}))])
    kernel = Kernel(service, [memory_filter(store)], [add])
    with pytest.raises(StoreBusy):
        caller.call(kernel, "1+2?", context=HERE)
    assert texts(store.get("c")) == ["1+2?", "", "3"]


@both
def test_a_result_too_large_to_be_stored_is_refused_in_words(store, caller, settings):
    settings.CONVMEM = {"MAX_MESSAGE_BYTES": 100}
    service = FakeService([calls(("dump", {})), "I see"])
    kernel = Kernel(service, [memory_filter(store)], [dump])
    assert caller.call(kernel, "go", context=HERE).text == "I see"
    kept = store.get("c")
    assert kept[2].is_error
    assert "202 bytes of text; 100 can be passed on" in kept[2].text


@both
def test_a_result_that_cannot_be_stored_leaves_no_call_open(store, caller):
    def bad():
        return Message.tool("x", "1", metadata={"score": float("nan")})

    service = FakeService([calls(("bad", {}))])
    kernel = Kernel(service, [memory_filter(store)], [bad])
    with pytest.raises(InvalidMessage, match="NaN"):
        caller.call(kernel, "go", context=HERE)
    kept = store.get("c")
    assert roles(kept) == ["user", "assistant", "tool"]
    assert kept[2].is_error


def dump():
    return "ü" * 101


@both
def test_an_error_of_the_model_is_not_hidden_by_one_of_the_store(caller, caplog):
    class Fails(LocalStore):
        def add(self, conversation_id, messages, *, key=None):
            if messages[0].role == "assistant":
                raise StoreBusy("locked")
            return super().add(conversation_id, messages, key=key)

    store = Fails(namespace=uuid.uuid4().hex)
    kernel = Kernel(FakeService([ProviderUnreachable("x")]), [memory_filter(store)])
    with pytest.raises(ProviderUnreachable):
        caller.call(kernel, "hi", context=HERE)
    assert "locked" in caplog.text


# --- the database ---


@pytest.mark.django_db(transaction=True)
@both
def test_the_database_remembers(caller):
    service = FakeService([calls(("add", {"a": 1, "b": 2})), "three", "yes"])
    kernel = Kernel(service, [again_once_each(), memory_filter(DatabaseStore())], [add])
    caller.call(kernel, "1+2?", context=HERE)
    caller.call(kernel, "sure?", context=HERE)
    assert texts(DatabaseStore().get("c")) == ["1+2?", "", "3", "three", "sure?", "yes"]
    assert sent(service, 2) == ["1+2?", "", "3", "three", "sure?"]


def again_once_each():
    def look(request, call_next):
        return (yield from call_next(request))

    return look


@pytest.mark.django_db(transaction=True)
def test_a_run_inside_an_open_transaction_is_refused(settings):
    service = FakeService(["never", "allowed"])
    kernel = Kernel(service, [memory_filter(DatabaseStore())])
    settings.CONVMEM = {"ALLOW_RUN_IN_TRANSACTION": False}
    with transaction.atomic(), pytest.raises(RunInTransaction, match="'default'"):
        kernel.invoke("hi", context=HERE)
    assert service.requests == []
    assert DatabaseStore().get("c") == []
    service.replies.pop(0)
    settings.CONVMEM = {"ALLOW_RUN_IN_TRANSACTION": True}
    with transaction.atomic():
        assert kernel.invoke("hi", context=HERE).text == "allowed"


def test_the_memory_filter_is_a_filter_by_its_own_rules():
    class Half:
        keeps_history = True

        def around_chat(self, request, call_next):
            return None

    with pytest.raises(InvalidFilter):
        Kernel(FakeService(), [Half()])
