"""Decisions in generators, input and output in two drivers.

A *flow* is a generator that yields operations and returns a value. It decides; it
never does I/O itself, so one definition serves sync and async, streamed or not::

    def greet(store, cid):
        history = yield from io(store.get, store.aget, cid)
        return len(history)

    run(greet(store, "a"))          # sync
    await arun(greet(store, "a"))   # async

Rules. Operations are yielded only through the helpers `io`, `stream`, `emit` and
`many`, never from a ``finally`` block. When the caller leaves (closes the iteration,
or its task is cancelled, or Ctrl-C is pressed) the driver throws `Interrupted` into the
flow at the operation that was waiting; the flow may save with a few more operations and
should then let it pass. Those last operations run to their end, silently: under asyncio
in a shielded task. What goes wrong in them is logged, since the caller has left.

`Interrupted` is no `Exception`, for the reason that `asyncio.CancelledError` is none: a
filter that retries on any exception must not call the model for a caller who has gone.
"""

from __future__ import annotations

from convmem.kernel.async_driver import AsyncIteration, aiterate, arun
from convmem.kernel.operations import (
    Emit,
    Flow,
    Io,
    Many,
    Operation,
    Stream,
    emit,
    io,
    many,
    stream,
    surely,
)
from convmem.kernel.sync_driver import Iteration, iterate, run

__all__ = [
    "AsyncIteration",
    "Emit",
    "Flow",
    "Io",
    "Iteration",
    "Many",
    "Operation",
    "Stream",
    "aiterate",
    "arun",
    "emit",
    "io",
    "iterate",
    "many",
    "run",
    "stream",
    "surely",
]
