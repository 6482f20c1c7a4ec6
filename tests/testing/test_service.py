from __future__ import annotations

import pytest

from convmem.chat import ChatRequest, Completion, TextDelta, ToolCallDelta
from convmem.exceptions import ProviderError
from convmem.messages import Message, ToolCall
from convmem.testing.service import BrokenReply, FakeService

REQUEST = ChatRequest(messages=(Message.user("Hi"),))
CALL = Message.assistant(tool_calls=(ToolCall(id="a", name="f", arguments="{}"),))


async def test_replies_in_order_of_every_kind() -> None:
    given = Completion(message=Message.assistant("three"), finish_reason="length")
    service = FakeService(
        ["one", CALL, given, lambda request: request.messages[-1].text + "!"]
    )
    assert service.complete(REQUEST).text == "one"
    assert (await service.acomplete(REQUEST)).finish_reason == "tool_calls"
    assert service.complete(REQUEST) is given
    assert (await service.acomplete(REQUEST)).text == "Hi!"
    assert service.requests == [REQUEST] * 4


async def test_streams_come_in_pieces() -> None:
    service = FakeService(["Hello you", CALL], chunk=5)
    source = service.stream(REQUEST)
    assert next(iter(source)) == TextDelta(text="Hello")
    assert source.completion().text == "Hello"
    assert source.completion().finish_reason == "interrupted"
    assert list(source) == [TextDelta(text=" you")]
    assert source.completion().message == Message.assistant("Hello you")
    source.close()
    source.close()
    answer = await service.astream(REQUEST)
    deltas = [delta async for delta in answer]
    assert deltas[0] == ToolCallDelta(index=0, id="a", name="f")
    assert answer.completion().tool_calls == CALL.tool_calls
    await answer.aclose()
    assert service.closed == 2


async def test_errors() -> None:
    service = FakeService([ProviderError("no")] * 4)
    with pytest.raises(ProviderError, match="no"):
        service.complete(REQUEST)
    with pytest.raises(ProviderError, match="no"):
        await service.acomplete(REQUEST)
    with pytest.raises(ProviderError, match="no"):
        service.stream(REQUEST)
    with pytest.raises(ProviderError, match="no"):
        await service.astream(REQUEST)


async def test_a_reply_that_breaks_off() -> None:
    reply = BrokenReply("partial", ProviderError("cut"))
    service = FakeService([reply, reply, reply])
    seen = []
    with pytest.raises(ProviderError, match="cut") as caught:
        for delta in service.stream(REQUEST):
            seen.append(delta)
    assert seen == [TextDelta(text="part"), TextDelta(text="ial")]
    assert caught.value.partial is not None
    assert caught.value.partial.text == "partial"
    assert caught.value.partial.message.status == "incomplete"
    with pytest.raises(ProviderError, match="cut"):
        async for _ in await service.astream(REQUEST):
            pass
    with pytest.raises(ProviderError, match="cut"):
        service.complete(REQUEST)


def test_a_call_too_many() -> None:
    service = FakeService(["a"])
    service.complete(REQUEST)
    with pytest.raises(AssertionError, match="has 1 replies; this is call 2"):
        service.complete(REQUEST)
    again = FakeService(["a", "b"], repeat=True)
    assert [again.complete(REQUEST).text for _ in range(4)] == ["a", "b", "b", "b"]


def test_a_closed_source_gives_no_more() -> None:
    source = FakeService(["Hello you"]).stream(REQUEST)
    iterator = iter(source)
    next(iterator)
    source.close()
    assert list(iterator) == []
    assert source.completion().text == "Hell"
