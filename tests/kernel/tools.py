"""What the tests of kernel and agent share."""

from __future__ import annotations

import json

from asgiref.sync import async_to_sync

from convmem.messages import Message, ToolCall


def calls(*wanted, text=None):
    """An assistant message that calls tools: ``("name", {arguments})`` each; ids are
    c0, c1 and so on."""
    return Message.assistant(
        text,
        tool_calls=tuple(
            ToolCall(
                id=f"c{index}",
                name=name,
                arguments=given if isinstance(given, str) else json.dumps(given),
            )
            for index, (name, given) in enumerate(wanted)
        ),
    )


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class SyncCaller:
    """Calls a kernel or agent as synchronous code does."""

    name = "sync"

    @staticmethod
    def call(conductor, *args, **kwargs):
        method = getattr(conductor, "invoke", None) or conductor.run
        return method(*args, **kwargs)

    @staticmethod
    def stream(conductor, *args, leave_after=None, **kwargs):
        """Return the events and, if read to the end, the result."""
        events = []
        with conductor.stream(*args, **kwargs) as iteration:
            for event in iteration:
                events.append(event)
                if len(events) == leave_after:
                    return events, None
            return events, iteration.result


class AsyncCaller:
    """The same in an event loop. Its database work comes back to this thread, so that
    the test's own connection is used."""

    name = "async"

    @staticmethod
    def call(conductor, *args, **kwargs):
        method = getattr(conductor, "ainvoke", None) or conductor.arun
        return async_to_sync(method)(*args, **kwargs)

    @staticmethod
    def stream(conductor, *args, leave_after=None, **kwargs):
        async def main():
            events = []
            async with conductor.astream(*args, **kwargs) as iteration:
                async for event in iteration:
                    events.append(event)
                    if len(events) == leave_after:
                        return events, None
                return events, iteration.result

        return async_to_sync(main)()


CALLERS = [SyncCaller, AsyncCaller]


def roles(messages):
    return [message.role for message in messages]


def texts(messages):
    return [message.text for message in messages]
