"""One way to call a service in each world, so that a test is written once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from convmem.chat import ChatRequest, Completion, Delta
from convmem.clients import HttpChatService
from convmem.exceptions import ConvmemError
from convmem.messages import Message
from convmem.testing.model_server import ModelServer

KEY = "sk-test-5ecret-Value"
HELLO = ChatRequest(messages=(Message.user("Hi"),), request_id="req-1")
WORLDS = pytest.mark.parametrize("world", ["sync", "async"])
BOTH = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


def service_at(server: ModelServer, **options: Any) -> HttpChatService:
    options = {"timeout": {"total": 20, "idle": 10, "first_event": 10}, **options}
    return HttpChatService("custom", "m", base_url=server.url, **options)


@dataclass
class Heard:
    """What a streamed call gave."""

    deltas: list[Delta] = field(default_factory=list)
    completion: Completion | None = None
    error: BaseException | None = None


async def complete(
    service: HttpChatService, world: str, request: ChatRequest = HELLO
) -> Completion:
    if world == "sync":
        return service.complete(request)
    return await service.acomplete(request)


async def listen(
    service: HttpChatService, world: str, request: ChatRequest = HELLO
) -> Heard:
    heard = Heard()
    try:
        if world == "sync":
            source = service.stream(request)
            for delta in source:
                heard.deltas.append(delta)
            heard.completion = source.completion()
        else:
            answer = await service.astream(request)
            async for delta in answer:
                heard.deltas.append(delta)
            heard.completion = answer.completion()
    except ConvmemError as error:
        heard.error = error
    return heard


async def outcome(
    service: HttpChatService,
    world: str,
    *,
    streamed: bool,
    request: ChatRequest = HELLO,
) -> Completion:
    """Call either way; return the completion or raise."""
    if not streamed:
        return await complete(service, world, request)
    heard = await listen(service, world, request)
    if heard.error is not None:
        raise heard.error
    assert heard.completion is not None
    return heard.completion
