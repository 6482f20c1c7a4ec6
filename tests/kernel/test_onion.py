"""Filters: order, streaming, buffering, tools, and those that are refused."""

from __future__ import annotations

import functools

import pytest

from convmem.chat import Completion, TextDelta, ToolCallDelta
from convmem.exceptions import (
    InvalidFilter,
    ProviderError,
    ProviderUnreachable,
    ToolError,
)
from convmem.kernel.flow import io
from convmem.kernel.kernel import Kernel
from convmem.messages import Message, RefusalPart, TextPart
from convmem.testing.service import BrokenReply, FakeService
from tests.kernel.tools import CALLERS, add, calls, texts

both = pytest.mark.parametrize("caller", CALLERS, ids=lambda c: c.name)


def noting(log, name):
    def note(request, call_next):
        log.append(f"{name} in")
        reply = yield from call_next(request)
        log.append(f"{name} out")
        return reply

    return note


@both
def test_the_first_filter_is_the_outermost(caller):
    log = []
    kernel = Kernel(FakeService(["hi"]), [noting(log, "a"), noting(log, "b")])
    caller.call(kernel, "go")
    assert log == ["a in", "b in", "b out", "a out"]


@both
def test_one_filter_serves_calls_and_streams(caller):
    log = []
    kernel = Kernel(FakeService(["hi"], repeat=True), [noting(log, "a")])
    caller.call(kernel, "go")
    events, _ = caller.stream(kernel, "go")
    assert log == ["a in", "a out"] * 2
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "hi"


@both
def test_a_filter_may_change_what_goes_in(caller):
    def shout(request, call_next):
        louder = [m.replace(content=m.text.upper()) for m in request.messages]
        return (yield from call_next(request.replace(messages=tuple(louder))))

    service = FakeService(["ok"])
    caller.call(Kernel(service, [shout]), "hi")
    assert texts(service.requests[0].messages) == ["HI"]


@both
def test_a_filter_may_answer_itself(caller):
    def canned(request, call_next):
        return Completion(message=Message.assistant("canned"))
        yield

    service = FakeService()
    assert caller.call(Kernel(service, [canned]), "hi").text == "canned"
    assert service.requests == []


@both
def test_a_filter_may_do_io(caller):
    log = []

    async def asave(text):
        log.append(("async", text))

    def audit(request, call_next):
        reply = yield from call_next(request)
        yield from io(lambda text: log.append(("sync", text)), asave, reply.text)
        return reply

    caller.call(Kernel(FakeService(["hi"]), [audit]), "go")
    assert log == [(caller.name, "hi")]


@both
def test_a_filter_runs_once_a_round_and_sees_run_and_round(caller):
    seen = []

    def look(request, call_next):
        request.scratch["rounds"] = request.scratch.get("rounds", 0) + 1
        seen.append((request.round, request.scratch["rounds"], request.context.run_id))
        return (yield from call_next(request))

    service = FakeService([calls(("add", {"a": 1, "b": 2})), "3"])
    result = caller.call(Kernel(service, [look], [add]), "go")
    run_id = result.run_id
    assert seen == [(0, 1, run_id), (1, 2, run_id)]


@both
def test_a_filter_may_call_several_times(caller):
    def retry(request, call_next):
        for _ in range(2):
            try:
                return (yield from call_next(request))
            except ProviderError:
                continue
        return (yield from call_next(request))

    errors = [ProviderUnreachable("one"), ProviderUnreachable("two")]
    service = FakeService([*errors, "third"])
    assert caller.call(Kernel(service, [retry]), "go").text == "third"
    assert len(service.requests) == 3


# --- buffering ---


def censor(request, call_next):
    reply = yield from call_next(request)
    text = reply.text.replace("secret", "***")
    return Completion(message=reply.message.replace(content=text))


def buffering_censor(request, call_next):
    return (yield from censor(request, call_next))


buffering_censor.buffers = True


@both
def test_deltas_of_a_plain_filter_do_not_wait(caller):
    events, result = caller.stream(Kernel(FakeService(["my secret"]), [censor]), "go")
    shown = "".join(e.text for e in events if isinstance(e, TextDelta))
    assert shown == "my secret"
    assert result.text == "my ***"


@both
def test_deltas_of_a_buffering_filter_wait_for_its_completion(caller):
    kernel = Kernel(FakeService(["my secret"], chunk=2), [buffering_censor])
    events, result = caller.stream(kernel, "go")
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["my ***"]
    assert result.text == "my ***"


@both
def test_two_buffering_filters_hand_out_once(caller):
    class Loud:
        buffers = True

        def around_chat(self, request, call_next):
            reply = yield from call_next(request)
            message = reply.message.replace(content=reply.text.upper())
            return Completion(message=message)

    kernel = Kernel(FakeService(["my secret"]), [Loud(), buffering_censor])
    events, _ = caller.stream(kernel, "go")
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["MY ***"]


@both
def test_tool_calls_and_refusals_wait_too(caller):
    def look(request, call_next):
        return (yield from call_next(request))

    look.buffers = True
    refusal = Message.assistant((TextPart(text="a"), RefusalPart(text="no")))
    service = FakeService([calls(("add", {"a": 1, "b": 2})), refusal], chunk=2)
    events, _ = caller.stream(Kernel(service, [look], [add]), "go")
    pieces = [e for e in events if isinstance(e, ToolCallDelta)]
    assert [(p.id, p.name, p.arguments) for p in pieces] == [
        ("c0", "add", '{"a": 1, "b": 2}')
    ]
    assert [e.text for e in events if getattr(e, "text", None)] == ["a", "no"]


@both
def test_what_a_buffering_filter_has_not_passed_is_no_partial_answer(caller):
    seen = []

    def outer(request, call_next):
        try:
            return (yield from call_next(request))
        except ProviderError as error:
            seen.append(error.partial)
            raise

    broken = BrokenReply("my secret", ProviderUnreachable("cut"))
    kernel = Kernel(FakeService([broken]), [outer, buffering_censor])
    with pytest.raises(ProviderUnreachable):
        caller.stream(kernel, "go")
    assert seen == [None]


# --- tools ---


@both
def test_tool_filters_stand_around_each_tool(caller):
    log = []

    class Audit:
        def __init__(self, name):
            self.name = name

        def around_tool(self, request, call_next):
            log.append((self.name, request.call.name, request.tool is not None))
            result = yield from call_next(request)
            log.append((self.name, result.content))
            return result

    service = FakeService([calls(("add", {"a": 1, "b": 2}), ("nope", {})), "3"])
    caller.call(Kernel(service, [Audit("outer"), Audit("inner")], [add]), "go")
    mine = [entry for entry in log if entry[1] in {"add", "3"}]
    assert mine == [
        ("outer", "add", True),
        ("inner", "add", True),
        ("inner", "3"),
        ("outer", "3"),
    ]
    assert ("outer", "nope", False) in log


@both
def test_a_tool_filter_may_refuse_with_words_for_the_model(caller):
    ran = []

    def delete():
        ran.append(True)

    class Guard:
        def around_tool(self, request, call_next):
            raise ToolError("Ask the user first.")
            yield

    service = FakeService([calls(("delete", {})), "ok"])
    result = caller.call(Kernel(service, [Guard()], [delete]), "go")
    assert ran == []
    assert result.messages[2].content == "Ask the user first."
    assert result.messages[2].is_error


@both
def test_a_broken_tool_filter_breaks_the_run(caller):
    class Broken:
        def around_tool(self, request, call_next):
            raise KeyError("bug")
            yield

    service = FakeService([calls(("add", {"a": 1, "b": 2})), "ok"])
    with pytest.raises(KeyError):
        caller.call(Kernel(service, [Broken()], [add]), "go")


@both
def test_one_object_may_have_both_sides(caller):
    class Both:
        def __init__(self):
            self.log = []

        def around_chat(self, request, call_next):
            self.log.append("chat")
            return (yield from call_next(request))

        def around_tool(self, request, call_next):
            self.log.append("tool")
            return (yield from call_next(request))

    both_sides = Both()
    service = FakeService([calls(("add", {"a": 1, "b": 2})), "3"])
    caller.call(Kernel(service, [both_sides], [add]), "go")
    assert both_sides.log == ["chat", "tool", "chat"]


# --- refused ---


def plain(request, call_next):
    return call_next(request)


async def coroutine(request, call_next):
    return None


async def async_generator(request, call_next):
    yield


class PlainMethod:
    def around_chat(self, request, call_next):
        return None


class WithGenerator:
    def around_chat(self, request, call_next):
        return (yield from call_next(request))


@pytest.mark.parametrize(
    "candidate",
    [plain, coroutine, async_generator, PlainMethod(), 3, None, "filter", lambda: 1],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_what_is_no_generator_function_is_refused_when_the_kernel_is_built(candidate):
    with pytest.raises(InvalidFilter, match="not a generator function"):
        Kernel(FakeService(), [candidate])


def test_a_class_is_refused():
    with pytest.raises(InvalidFilter, match="is a class; pass an instance"):
        Kernel(FakeService(), [WithGenerator])


def test_a_wrong_signature_is_refused():
    def one(request):
        yield

    with pytest.raises(InvalidFilter, match=r"one must take \(request, call_next\)"):
        Kernel(FakeService(), [one])


def test_a_partial_of_a_generator_function_is_a_filter():
    def audit(log, request, call_next):
        log.append("seen")
        return (yield from call_next(request))

    log = []
    Kernel(FakeService(["a"]), [functools.partial(audit, log)]).invoke("go")
    assert log == ["seen"]


@both
def test_a_filter_that_forgets_to_return_is_named(caller):
    def forgetful(request, call_next):
        yield from call_next(request)

    with pytest.raises(InvalidFilter, match="forgetful returned NoneType"):
        caller.call(Kernel(FakeService(["a"]), [forgetful]), "go")
