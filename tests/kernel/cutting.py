"""Cut a flow off at its n-th operation, as a caller does who leaves just there."""

from __future__ import annotations

import asyncio

from convmem.exceptions import Interrupted
from convmem.kernel.flow import Io, Many, Stream


class Cut:
    """Counts operations across nested flows and cuts one of them.

    ``after`` cuts when the operation's effect has happened but its result has not come
    back; else before anything has happened. A stream is cut after its first delta.
    """

    def __init__(self, at, *, after, leaving):
        self.at = at
        self.after = after
        self.leaving = leaving
        self.count = -1
        self.done = False

    def flow(self, flow):
        """Pass the operations of ``flow`` on, but for the one to be cut."""
        send, value = flow.send, None
        while True:
            try:
                operation = send(value)
            except StopIteration as stop:
                return stop.value
            try:
                value = yield self.operation(operation)
            except (Exception, Interrupted) as error:  # noqa: BLE001
                send, value = flow.throw, error
            else:
                send = flow.send

    def operation(self, operation):
        if self.done:
            return operation
        if isinstance(operation, Many):
            return Many([self.flow(flow) for flow in operation.flows])
        self.count += 1
        if self.count != self.at:
            return operation
        self.done = True
        if isinstance(operation, Stream):
            return self.stream(operation)
        return self.io(operation)

    def io(self, operation):
        def call():
            if self.after and isinstance(operation, Io):
                operation.call(*operation.args, **operation.kwargs)
            raise self.leaving

        async def acall():
            if self.after and isinstance(operation, Io):
                await operation.acall(*operation.args, **operation.kwargs)
            raise self.leaving

        return Io(call, acall)

    def stream(self, operation):
        async def aopen():
            return CutSource(await operation.aopen(), self)

        return Stream(lambda: CutSource(operation.open(), self), aopen)


class CutSource:
    """A source that is left after its first delta."""

    def __init__(self, source, cut):
        self.source, self.cut = source, cut
        self.completion, self.close = source.completion, source.close
        self.aclose = source.aclose

    def __iter__(self):
        if not self.cut.after:
            raise self.cut.leaving
        for event in self.source:
            yield event
            raise self.cut.leaving

    async def __aiter__(self):
        if not self.cut.after:
            raise self.cut.leaving
        async for event in self.source:
            yield event
            raise self.cut.leaving


def cut_everywhere(make, *, drive, leaving):
    """Yield what the world looks like after each cut: ``make()`` returns a new flow and
    a function of no arguments that tells."""
    for after in (False, True):
        for at in range(1000):
            flow, tell = make()
            cut = Cut(at, after=after, leaving=leaving)
            try:
                drive(cut.flow(flow))
            except type(leaving):
                assert cut.done
            if not cut.done:
                break
            yield f"{'after' if after else 'before'} operation {at}", tell()
        else:
            raise AssertionError("the flow never ended")
        assert at > 1


def drive_async(arun):
    return lambda flow: asyncio.run(arun(flow))
