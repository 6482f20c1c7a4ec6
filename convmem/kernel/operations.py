"""What a flow may ask for: four operations and the helpers that yield them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from convmem.chat import AsyncSource, Completion, Event, SyncSource
from convmem.exceptions import Interrupted

T = TypeVar("T")
Flow: TypeAlias = Generator["Operation", Any, T]


@dataclass(frozen=True, slots=True)
class Io:
    """Call ``call``, or await ``acall``, with the same arguments."""

    call: Callable[..., Any]
    acall: Callable[..., Awaitable[Any]]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stream:
    """Open a model's stream and read it to its end."""

    open: Callable[[], SyncSource]
    aopen: Callable[[], Awaitable[AsyncSource]]
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Emit:
    """Hand one event to the caller."""

    event: Event


@dataclass(frozen=True, slots=True)
class Many:
    """Drive several flows; their results are a list in the same order."""

    flows: Sequence[Flow[Any]]


Operation: TypeAlias = Io | Stream | Emit | Many


def io(
    call: Callable[..., T],
    acall: Callable[..., Awaitable[T]],
    *args: Any,
    **kwargs: Any,
) -> Flow[T]:
    """Call ``call`` or await ``acall`` with the same arguments; return the result."""
    result: T = yield Io(call, acall, args, kwargs)
    return result


def stream(
    open: Callable[[], SyncSource],  # noqa: A002 - the operation's own name
    aopen: Callable[[], Awaitable[AsyncSource]],
    *,
    quiet: bool = False,
) -> Flow[Completion]:
    """Open a model's stream, hand its deltas to the caller as they come (unless
    ``quiet``), close it and return the assembled completion."""
    completion: Completion = yield Stream(open, aopen, quiet)
    return completion


def emit(event: Event) -> Flow[None]:
    """Hand one event to the caller, if the caller is iterating."""
    yield Emit(event)


def many(flows: Sequence[Flow[T]]) -> Flow[list[T]]:
    """Run flows side by side (async) or in order (sync: a thread each would open a
    database connection each); return their results in order. The first error wins
    and the others are interrupted."""
    results: list[T] = yield Many(flows)
    return results


def surely(make: Callable[[], Flow[T]]) -> Flow[T]:
    """Perform ``make()``; when the caller leaves in the middle of it, once more.

    For idempotent operations that must be done once begun: nobody knows whether the
    interrupted one was.
    """
    try:
        return (yield from make())
    except Interrupted:
        yield from make()
        raise
