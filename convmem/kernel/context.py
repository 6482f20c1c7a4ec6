"""The values that travel with a call: its context, its request, its result."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from convmem.chat import ChatRequest, Completion
from convmem.exceptions import BadInput, InvalidMessage
from convmem.messages import SYSTEM_ROLES, Message, ToolCall, Usage, Value
from convmem.owners import NOBODY, Owner, check_owner
from convmem.validation import MAX_ID_LENGTH, as_message, check_conversation_id

if TYPE_CHECKING:
    from convmem.kernel.tools import Tool


Prompt: TypeAlias = str | Message | Mapping[str, Any]
Prompts: TypeAlias = Prompt | Sequence[Prompt]


def new_id() -> str:
    """Return 32 random hex digits."""
    return uuid.uuid4().hex


class Context(Value, frozen=True, gc=True):
    """Whose call it is and where it belongs.

    A context may serve many runs: each gets a new ``run_id``. Whoever attempts the same
    run again gives the same one, and memory, which stores under keys made of it, stores
    nothing twice; filters and tools always see it filled in. ``metadata`` is the
    caller's own: filters and tools may read it, nothing is stored from it.
    """

    conversation_id: str | None = None
    owner: Owner = NOBODY
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    run_id: str = ""

    def replace(self, **changes: Any) -> Context:
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    def started(self) -> Context:
        """Return the context of one run: with a run id."""
        return self if self.run_id else self.replace(run_id=new_id())


def check_context(context: Context | None) -> Context:
    """Return a well-formed context (an empty one for None), or raise `BadInput`."""
    if context is None:
        return Context()
    if not isinstance(context, Context):
        raise BadInput(f"context must be a Context, not {type(context).__name__}.")
    if context.conversation_id is not None:
        check_conversation_id(context.conversation_id)
    check_owner(context.owner)
    _check_run_id(context.run_id)
    return context


def _check_run_id(run_id: object) -> None:
    longest = MAX_ID_LENGTH // 2  # a store's key is the run's id and a little more
    if not isinstance(run_id, str) or len(run_id) > longest:
        raise BadInput(f"run_id must be a string of at most {longest} characters.")


class KernelRequest(ChatRequest, frozen=True, gc=True):
    """What a chat filter gets: one call of the model in one round of the tool loop.

    ``messages`` is what goes inward. ``scratch`` is one dict for the whole run, shared
    by all rounds and attempts: a filter may keep things there under a key of its own.
    """

    context: Context = Context()
    round: int = 0
    system_prompts: tuple[Message, ...] = ()
    #: The caller reads events as they come.
    streaming: bool = False
    #: A filter further out waits for the whole answer, so that no delta may go out.
    quiet: bool = False
    scratch: dict[str, Any] = msgspec.field(default_factory=dict)

    def replace(self, **changes: Any) -> KernelRequest:
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    def for_service(self) -> ChatRequest:
        """Return the part that a chat service is asked with."""
        return ChatRequest(
            **{name: getattr(self, name) for name in ChatRequest.__struct_fields__}
        )


class ToolRequest(Value, frozen=True, gc=True):
    """What a tool filter gets: one call of a tool. ``tool`` is None when there is none
    of that name."""

    call: ToolCall
    context: Context
    tool: Tool | None = None

    def replace(self, **changes: Any) -> ToolRequest:
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class Result(Value, frozen=True, gc=True):
    """How a run ended: the last ``reply``, the ``context`` that was given, and all
    ``messages`` of the turn, the caller's included. ``usage`` adds up the ``rounds``
    (calls of the model); a figure that any of them left out is None."""

    reply: Message
    context: Context
    messages: tuple[Message, ...]
    rounds: int
    run_id: str = ""
    usage: Usage | None = None
    finish_reason: str = "stop"

    @property
    def text(self) -> str:
        return self.reply.text


def total_usage(completions: Iterable[Completion]) -> Usage | None:
    """Add up token counts; what is unknown in one is unknown in the sum."""
    usages = [completion.usage for completion in completions]
    known = [usage for usage in usages if usage is not None]
    if not known or len(known) < len(usages):
        return None
    fields = [name for name in Usage.__struct_fields__ if name.endswith("_tokens")]
    totals: dict[str, Any] = {}
    for name in fields:
        values = [getattr(usage, name) for usage in known]
        totals[name] = None if None in values else sum(values)
    return Usage(**totals)


def reply_of(completion: Completion) -> Message:
    """Return the answer as it is kept: with the tokens and the model it came from."""
    message = completion.message
    return message.replace(
        position=None,
        usage=message.usage or completion.usage,
        model=message.model or completion.model or None,
    )


def as_prompts(value: Prompts) -> tuple[Message, ...]:
    """Return system prompts as messages: strings become system messages.

    Raises `InvalidMessage` for any other role than system and developer.
    """
    items = [value] if isinstance(value, str | Message | Mapping) else value
    if not isinstance(items, Sequence):
        raise InvalidMessage(
            "System prompts are a string, a message or a list of these, "
            f"not {type(items).__name__}.",
            index=None,
            field=None,
        )
    return tuple(_prompt(item, index) for index, item in enumerate(items))


def _prompt(item: Prompt, index: int) -> Message:
    if isinstance(item, str):
        return Message.system(item)
    message = as_message(item, index=index)
    if message.role not in SYSTEM_ROLES:
        raise InvalidMessage(
            f"System prompt {index} has the role {message.role!r}; "
            "it must be a string, or a message of role system or developer.",
            index=index,
            field="role",
        )
    return message
