"""The kernel in full mode: what is sent, the tool loop, the two worlds, streaming."""

from __future__ import annotations

import asyncio

import pytest

from convmem.chat import (
    Completion,
    CompletionDone,
    ReasoningDelta,
    TextDelta,
    ToolResultDelta,
)
from convmem.exceptions import (
    BadInput,
    ConfigurationError,
    EmptyBatch,
    InvalidConversationId,
    InvalidMessage,
    InvalidTool,
    ProviderUnreachable,
    RoundsExceeded,
    UnknownService,
)
from convmem.kernel import services
from convmem.kernel.context import Context, Result
from convmem.kernel.kernel import Kernel
from convmem.messages import Message, ReasoningPart, TextPart, Usage
from convmem.testing.service import BrokenReply, FakeService
from tests.kernel.tools import CALLERS, add, calls, roles, texts

both = pytest.mark.parametrize("caller", CALLERS, ids=lambda c: c.name)


# --- what goes in ---


@both
@pytest.mark.parametrize(
    "given",
    [
        "hi",
        {"role": "user", "content": "hi"},
        Message.user("hi"),
        ["hi"],
        [{"role": "user", "content": "hi"}],
        (Message.user("hi"),),
    ],
    ids=["string", "dict", "message", "list", "list of dicts", "tuple"],
)
def test_every_form_of_input_is_taken(given, caller):
    service = FakeService(["hello"])
    result = caller.call(Kernel(service), given)
    assert service.requests[0].messages == (Message.user("hi"),)
    assert result.text == "hello"
    assert texts(result.messages) == ["hi", "hello"]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ([], EmptyBatch),
        (3, InvalidMessage),
        (None, InvalidMessage),
        ([{"role": "robot", "content": "x"}], InvalidMessage),
        ([{"role": "tool", "content": "x"}], InvalidMessage),
        (b"hi", InvalidMessage),
    ],
)
def test_bad_input_is_refused_before_anything_is_done(given, error):
    service = FakeService(["never"])
    kernel = Kernel(service)
    for call in (kernel.invoke, kernel.stream, kernel.astream):
        with pytest.raises(error):
            call(given)
    with pytest.raises(error):
        asyncio.run(kernel.ainvoke(given))
    assert service.requests == []


@pytest.mark.parametrize(
    ("context", "error"),
    [
        ({"conversation_id": "c"}, BadInput),
        (Context(conversation_id=""), InvalidConversationId),
        (Context(conversation_id="x" * 256), InvalidConversationId),
        (Context(run_id="x" * 200), BadInput),
    ],
)
def test_a_bad_context_is_refused(context, error):
    with pytest.raises(error):
        Kernel(FakeService()).invoke("hi", context=context)


def test_options_of_one_run_reach_the_model():
    service = FakeService(["a"])
    Kernel(service).invoke("hi", options={"temperature": 0.5, "model": "m"})
    assert service.requests[0].temperature == 0.5
    assert service.requests[0].model == "m"


def test_an_unknown_option_is_refused_by_name():
    with pytest.raises(BadInput, match="'heat'"):
        Kernel(FakeService()).invoke("hi", options={"heat": 1})
    with pytest.raises(BadInput, match="'messages'"):
        Kernel(FakeService()).invoke("hi", options={"messages": ()})
    with pytest.raises(BadInput, match="options must be a dict, not list"):
        Kernel(FakeService()).invoke("hi", options=["model"])


def test_what_is_no_service_is_refused():
    with pytest.raises(ConfigurationError, match="int is no chat service"):
        Kernel(3)


@pytest.mark.parametrize("value", [0, -1, True, 2.5, "3"])
def test_max_rounds_must_be_a_positive_whole_number(value):
    with pytest.raises(ConfigurationError, match=f"max_rounds .* not {value!r}"):
        Kernel(FakeService(), max_rounds=value)


def test_a_service_may_be_an_alias(settings):
    settings.CONVMEM = {
        "SERVICES": {
            "default": {
                "BACKEND": "convmem.testing.service.FakeService",
                "OPTIONS": {"REPLIES": ["from settings"]},
            }
        }
    }
    kernel = Kernel("default")
    assert kernel.invoke("hi").text == "from settings"


def test_an_unknown_alias_is_named(settings):
    settings.CONVMEM = {}
    with pytest.raises(UnknownService, match="'nowhere'"):
        Kernel("nowhere").invoke("hi")


def test_without_a_project_an_alias_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(services, "_project", services._Project())
    with pytest.raises(UnknownService, match="INSTALLED_APPS"):
        Kernel("default").invoke("hi")
    assert Kernel(FakeService()).max_rounds == services.DEFAULT_MAX_ROUNDS


# --- stateless ---


@both
def test_full_mode_keeps_nothing_between_calls(caller):
    service = FakeService(["a", "b"])
    kernel = Kernel(service)
    context = Context(conversation_id="c")
    caller.call(kernel, "one", context=context)
    caller.call(kernel, "two", context=context)
    assert texts(service.requests[1].messages) == ["two"]


def test_context_is_frozen_and_comes_back():
    context = Context(conversation_id="c", metadata={"a": 1})
    with pytest.raises(AttributeError):
        context.conversation_id = "d"
    assert Kernel(FakeService(["a"])).invoke("hi", context=context).context == context


def test_every_run_has_an_id_of_its_own():
    kernel = Kernel(FakeService(["a"], repeat=True))
    context = Context()
    first, second = (kernel.invoke("x", context=context) for _ in range(2))
    assert first.run_id
    assert first.run_id != second.run_id


def test_a_result_says_which_run_it_was():
    result = Kernel(FakeService(["a"])).invoke("x", context=Context(run_id="r1"))
    assert result.run_id == "r1"


def test_system_prompts_stand_first_in_every_round_and_not_in_the_turn():
    service = FakeService([calls(("add", {"a": 1, "b": 2})), "3"])
    result = Kernel(service, tools=[add]).invoke(
        "hi", system_prompts=["S1", Message(role="developer", content="D")]
    )
    for request in service.requests:
        assert texts(request.messages[:2]) == ["S1", "D"]
        assert roles(request.messages[:2]) == ["system", "developer"]
    assert "system" not in roles(result.messages)


def test_a_system_prompt_of_another_role_is_refused():
    with pytest.raises(InvalidMessage, match="System prompt 0 has the role 'user'"):
        Kernel(FakeService()).invoke("hi", system_prompts=[Message.user("x")])


def test_a_system_prompt_may_be_a_dict_and_is_nothing_else():
    service = FakeService(["a"])
    prompt = {"role": "system", "content": "S"}
    Kernel(service).invoke("hi", system_prompts=prompt)
    assert texts(service.requests[0].messages) == ["S", "hi"]
    for wrong in (None, 5, {"role": "system"}):
        with pytest.raises(InvalidMessage):
            Kernel(FakeService()).invoke("hi", system_prompts=wrong)


# --- the tool loop ---


@both
def test_each_round_of_full_mode_sends_the_whole_turn(caller):
    service = FakeService([calls(("add", {"a": 1, "b": 2})), "three"])
    result = caller.call(Kernel(service, tools=[add]), "1+2?")
    assert roles(service.requests[0].messages) == ["user"]
    assert roles(service.requests[1].messages) == ["user", "assistant", "tool"]
    assert texts(result.messages) == ["1+2?", "", "3", "three"]
    assert result.rounds == 2
    assert service.requests[0].tools[0].name == "add"


@both
def test_results_return_in_call_order_whatever_ends_first(caller):
    async def slow(n: int):
        await asyncio.sleep(0.02 / (n + 1))
        return n

    service = FakeService([calls(*[("slow", {"n": n}) for n in range(4)]), "done"])
    result = caller.call(Kernel(service, tools=[slow]), "go")
    results = [m for m in result.messages if m.role == "tool"]
    assert [m.content for m in results] == ["0", "1", "2", "3"]
    assert [m.tool_call_id for m in results] == ["c0", "c1", "c2", "c3"]


async def test_parallel_calls_run_side_by_side():
    meeting = asyncio.Barrier(2)

    async def meet(n: int):
        async with asyncio.timeout(5):
            await meeting.wait()
        return n

    service = FakeService([calls(("meet", {"n": 0}), ("meet", {"n": 1})), "met"])
    assert (await Kernel(service, tools=[meet]).ainvoke("go")).text == "met"


@both
def test_the_same_id_twice_in_one_answer_gives_two_results_in_order(caller):
    twice = calls(("add", {"a": 1, "b": 1}), ("add", {"a": 2, "b": 2}))
    twice = twice.replace(
        tool_calls=tuple(
            type(call)(id="k", name=call.name, arguments=call.arguments)
            for call in twice.tool_calls
        )
    )
    result = caller.call(Kernel(FakeService([twice, "ok"]), tools=[add]), "go")
    results = [(m.tool_call_id, m.content) for m in result.messages if m.role == "tool"]
    assert results == [("k", "2"), ("k", "4")]


@both
def test_an_unknown_tool_bad_json_and_a_raising_tool_become_error_results(caller):
    def broken():
        raise ValueError("secret-token")

    answer = calls(("nope", {}), ("add", "{bad"), ("broken", {}), ("add", {"a": 1}))
    service = FakeService([answer, "I see"])
    result = caller.call(Kernel(service, tools=[add, broken]), "go")
    results = [m for m in result.messages if m.role == "tool"]
    assert [m.is_error for m in results] == [True] * 4
    assert "no tool 'nope'" in results[0].content
    assert "add, broken" in results[0].content
    assert "not valid JSON" in results[1].content
    assert "ValueError" in results[2].content
    assert "secret-token" not in results[2].content
    assert "b: Field required" in results[3].content
    assert service.requests[1].messages[2:] == tuple(results)
    assert result.text == "I see"


@both
def test_a_tool_gets_the_context_of_its_run(caller):
    def who(context: Context):
        return f"{context.conversation_id} {context.metadata['user']}"

    service = FakeService([calls(("who", {})), "ok"])
    context = Context(conversation_id="c", metadata={"user": "Ada"})
    result = caller.call(Kernel(service, tools=[who]), "go", context=context)
    assert result.messages[2].content == "c Ada"


@both
def test_too_many_rounds_end_with_a_clear_error_and_leave_no_call_open(caller):
    again = calls(("add", {"a": 1, "b": 1}))
    service = FakeService([again], repeat=True)
    with pytest.raises(RoundsExceeded, match="after 3 rounds"):
        caller.call(Kernel(service, tools=[add], max_rounds=3), "go")
    assert len(service.requests) == 3


def test_the_projects_limit_on_rounds_counts(settings):
    settings.CONVMEM = {"MAX_ROUNDS": 2}
    service = FakeService([calls(("add", {"a": 1, "b": 1}))], repeat=True)
    with pytest.raises(RoundsExceeded, match="after 2 rounds"):
        Kernel(service, tools=[add]).invoke("go")
    assert len(service.requests) == 2


def test_a_forced_tool_choice_holds_for_the_first_round_only():
    for choice in ("required", {"type": "function", "function": {"name": "add"}}):
        service = FakeService([calls(("add", {"a": 1, "b": 2})), "3"])
        Kernel(service, tools=[add]).invoke("go", options={"tool_choice": choice})
        assert [r.tool_choice for r in service.requests] == [choice, None]


def test_each_round_has_a_request_id_made_of_run_and_round():
    service = FakeService([calls(("add", {"a": 1, "b": 2})), "3"])
    Kernel(service, tools=[add]).invoke("go", context=Context(run_id="r"))
    assert [r.request_id for r in service.requests] == ["r.0", "r.1"]


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(InvalidTool, match="'add'"):
        Kernel(FakeService(), tools=[add, add])


def test_a_kernel_with_more_tools_leaves_the_first_as_it_is():
    def sub(a: int, b: int):
        return a - b

    kernel = Kernel(FakeService(), tools=[add], max_rounds=4)
    more = kernel.with_tools([sub])
    assert [t.name for t in kernel.toolbox] == ["add"]
    assert [t.name for t in more.toolbox] == ["add", "sub"]
    assert more.max_rounds == 4


# --- usage ---


def answer(text, usage, **fields):
    message = text if isinstance(text, Message) else Message.assistant(text)
    return Completion(message=message, usage=usage, model="m-1", **fields)


def test_usage_adds_up_and_is_kept_with_each_message():
    first = Usage(input_tokens=10, output_tokens=2, total_tokens=12, cached_tokens=4)
    second = Usage(input_tokens=20, output_tokens=3, total_tokens=23)
    service = FakeService(
        [answer(calls(("add", {"a": 1, "b": 2})), first), answer("3", second)]
    )
    result = Kernel(service, tools=[add]).invoke("go")
    assert result.usage == Usage(input_tokens=30, output_tokens=5, total_tokens=35)
    assert result.messages[1].usage == first
    assert result.reply.usage == second
    assert result.reply.model == "m-1"


def test_what_one_round_leaves_unknown_is_unknown_in_the_sum():
    service = FakeService(
        [answer(calls(("add", {"a": 1, "b": 2})), Usage(input_tokens=1)), "3"]
    )
    assert Kernel(service, tools=[add]).invoke("go").usage is None


def test_the_finish_reason_comes_back():
    service = FakeService([answer("cut", None, finish_reason="length")])
    assert Kernel(service).invoke("go").finish_reason == "length"


# --- streaming ---


@both
def test_a_stream_gives_deltas_results_and_completions_and_then_the_result(caller):
    service = FakeService([calls(("add", {"a": 1, "b": 2})), "three"], chunk=3)
    kernel = Kernel(service, tools=[add])
    events, result = caller.stream(kernel, "1+2?")
    shown = "".join(e.text for e in events if isinstance(e, TextDelta))
    assert shown == "three"
    results = [e.message.content for e in events if isinstance(e, ToolResultDelta)]
    assert results == ["3"]
    done = [e for e in events if isinstance(e, CompletionDone)]
    assert len(done) == 2
    assert isinstance(result, Result)
    assert result.text == "three"
    assert service.closed == 2


@both
def test_a_stream_and_a_call_end_alike(caller):
    script = [calls(("add", {"a": 1, "b": 2})), "three"]
    called = caller.call(Kernel(FakeService(script), tools=[add]), "1+2?")
    _, streamed = caller.stream(Kernel(FakeService(script), tools=[add]), "1+2?")
    assert streamed.messages == called.messages
    assert streamed.rounds == called.rounds


@both
def test_leaving_a_stream_closes_the_models_answer(caller):
    service = FakeService(["a long answer"], chunk=2)
    caller.stream(Kernel(service), "go", leave_after=2)
    assert service.closed == 1


@both
def test_an_error_of_the_model_reaches_the_caller(caller):
    error = ProviderUnreachable("cut")
    service = FakeService([BrokenReply("partial", error)], chunk=3)
    with pytest.raises(ProviderUnreachable, match="cut") as caught:
        caller.stream(Kernel(service), "go")
    assert caught.value.partial.text == "partial"


async def test_many_runs_share_one_kernel_side_by_side():
    service = FakeService(
        [lambda request: f"to {request.messages[-1].text}"], repeat=True, delay=0.001
    )
    kernel = Kernel(service)
    results = await asyncio.gather(*(kernel.ainvoke(str(n)) for n in range(20)))
    assert [r.text for r in results] == [f"to {n}" for n in range(20)]


def test_reasoning_is_streamed_and_kept():
    message = Message.assistant((ReasoningPart(text="hm"), TextPart(text="yes")))
    events, result = CALLERS[0].stream(Kernel(FakeService([message])), "go")
    assert [e.text for e in events if isinstance(e, ReasoningDelta)] == ["hm"]
    assert result.reply.content == message.content
