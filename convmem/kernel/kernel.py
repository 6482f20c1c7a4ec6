"""The stateless kernel: a chat service, filters around it, tools beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from convmem.chat import ChatRequest, ChatService, Completion
from convmem.exceptions import (
    BadInput,
    ConfigurationError,
    EmptyBatch,
    Interrupted,
    MixedMemory,
    ToolError,
)
from convmem.kernel.async_driver import AsyncIteration, aiterate, arun
from convmem.kernel.context import (
    Context,
    KernelRequest,
    Prompts,
    Result,
    ToolRequest,
    as_prompts,
    check_context,
    new_id,
)
from convmem.kernel.loop import Turn, tool_loop
from convmem.kernel.onion import (
    ChatCall,
    HistoryFilter,
    Layer,
    as_layer,
    chat_chain,
    tool_chain,
)
from convmem.kernel.operations import Flow, io, stream
from convmem.kernel.services import (
    check_service,
    max_message_bytes,
    resolve_max_rounds,
    resolve_service,
)
from convmem.kernel.steps import logger
from convmem.kernel.sync_driver import Iteration, iterate, run
from convmem.kernel.tools import Tool, Toolbox, error_message
from convmem.messages import Message, ToolCall
from convmem.validation import as_messages

Input: TypeAlias = str | Message | Mapping[str, Any] | Sequence[Any]
#: Fields of `ChatRequest` that a caller may set for one run.
OPTIONS = frozenset(ChatRequest.__struct_fields__) - {"messages", "tools", "request_id"}
FORCING = frozenset({"required"})


class Kernel:
    """Calls a model through filters, runs the tools it asks for, keeps nothing.

    ``service`` is a `ChatService` or an alias of ``CONVMEM["SERVICES"]``. ``filters``
    stand around each model call and each tool, the first one outermost. ``tools`` are
    callables or `Tool` objects. ``max_rounds`` limits the model calls of one run (None:
    ``CONVMEM["MAX_ROUNDS"]``).

    Without a memory filter (*full mode*) each round sends the whole turn, nothing is
    stored and ``context.conversation_id`` is not used. With one (*delta mode*) each
    round passes only what is new and the filter stores and expands it; without a
    conversation id an ephemeral one is made, and cleared at the end.

    Raises `InvalidFilter`, `InvalidTool`, and `MixedMemory` for two memory filters.
    """

    def __init__(
        self,
        service: ChatService | str,
        filters: Iterable[object] = (),
        tools: Iterable[Tool | Any] = (),
        *,
        max_rounds: int | None = None,
    ) -> None:
        self._max_rounds = _check_max_rounds(max_rounds)
        self._service = check_service(service)
        self.filters = tuple(filters)
        self.toolbox = Toolbox(tools)
        self._history = _history_filter(self.filters)
        layers = [as_layer(item) for item in self.filters]
        # Directly inside the memory filter; outermost when there is none.
        place = 1 + next(
            (n for n, item in enumerate(self.filters) if item is self._history), -1
        )
        inner = [*layers[:place], Layer("system_prompts", _prompt), *layers[place:]]
        #: The model call and the tool call inside all their filters.
        self.chat = chat_chain(inner, self._send)
        self._use_tool = tool_chain(layers, self._run_tool)

    @property
    def keeps_history(self) -> bool:
        """Whether a memory filter is in the list."""
        return self._history is not None

    @property
    def max_rounds(self) -> int:
        """Most model calls of one run."""
        return resolve_max_rounds(self._max_rounds)

    def with_tools(self, tools: Iterable[Tool | Any]) -> Kernel:
        """Return a kernel that has more tools."""
        return Kernel(
            self._service,
            self.filters,
            [*self.toolbox, *tools],
            max_rounds=self._max_rounds,
        )

    # --- the four ways to call it ---

    def invoke(
        self,
        messages: Input,
        *,
        context: Context | None = None,
        system_prompts: Prompts = (),
        options: Mapping[str, Any] | None = None,
    ) -> Result:
        """Run one turn to its end.

        ``messages`` is a string, a dict, a `Message` or a list of these.
        ``system_prompts`` stand before all that the model sees and are never stored.
        ``options`` sets fields of `ChatRequest` such as ``temperature``.

        Raises `BadInput` before anything is done, `RoundsExceeded`, and what the
        service raises (`ProviderError`).
        """
        return run(self.flow(messages, context, system_prompts, options))

    async def ainvoke(
        self,
        messages: Input,
        *,
        context: Context | None = None,
        system_prompts: Prompts = (),
        options: Mapping[str, Any] | None = None,
    ) -> Result:
        """The same in an event loop."""
        return await arun(self.flow(messages, context, system_prompts, options))

    def stream(
        self,
        messages: Input,
        *,
        context: Context | None = None,
        system_prompts: Prompts = (),
        options: Mapping[str, Any] | None = None,
    ) -> Iteration[Result]:
        """Return an iteration over events; its ``result`` is there at the end.

        Leave early with ``close()`` or ``with``: what came is kept as incomplete.
        """
        return iterate(
            self.flow(messages, context, system_prompts, options, streaming=True)
        )

    def astream(
        self,
        messages: Input,
        *,
        context: Context | None = None,
        system_prompts: Prompts = (),
        options: Mapping[str, Any] | None = None,
    ) -> AsyncIteration[Result]:
        """The same for ``async for``; leave early with ``aclose()``."""
        return aiterate(
            self.flow(messages, context, system_prompts, options, streaming=True)
        )

    # --- for those who conduct a kernel ---

    def flow(
        self,
        messages: Input,
        context: Context | None = None,
        system_prompts: Prompts = (),
        options: Mapping[str, Any] | None = None,
        *,
        streaming: bool = False,
    ) -> Flow[Result]:
        """Check the input at once and return the run as a flow."""
        turn = Turn(check_input(messages))
        given = check_context(context)
        first = self.request(
            given.started(),
            system_prompts=as_prompts(system_prompts),
            options=options,
            streaming=streaming,
        )
        if self._history is None:
            return self._full(turn, first, given)
        return self._delta(turn, first, given, self._history)

    def request(
        self,
        context: Context,
        *,
        system_prompts: tuple[Message, ...] = (),
        options: Mapping[str, Any] | None = None,
        streaming: bool = False,
    ) -> KernelRequest:
        """Return the request of a run's first round, still without messages."""
        if not isinstance(options, Mapping | None):
            raise BadInput(f"options must be a dict, not {type(options).__name__}.")
        unknown = sorted(set(options or ()) - OPTIONS)
        if unknown:
            raise BadInput(
                f"Unknown option {unknown[0]!r}; known: {', '.join(sorted(OPTIONS))}.",
                field=unknown[0],
            )
        return KernelRequest(
            messages=(),
            tools=self.toolbox.specs,
            context=context,
            system_prompts=system_prompts,
            streaming=streaming,
            request_id=f"{context.run_id}.0",
            **(options or {}),
        )

    def execute(self, call: ToolCall, context: Context) -> Flow[Message]:
        """Run one tool inside its filters; return its result or an error result."""
        request = ToolRequest(
            call=call, context=context, tool=self.toolbox.get(call.name)
        )
        try:
            result = yield from self._use_tool(request)
        except ToolError as refusal:  # by a filter
            return error_message(call, refusal.message)
        size, limit = len(result.text.encode(errors="replace")), max_message_bytes()
        if size > limit:  # it could not be stored, and the turn with it
            return error_message(
                call,
                f"The result has {size} bytes of text; {limit} can be passed on. "
                "Ask for less.",
            )
        return result

    # --- the two modes ---

    def _full(self, turn: Turn, first: KernelRequest, given: Context) -> Flow[Result]:
        def ask(turn: Turn) -> Flow[Completion]:
            return self.chat(next_round(first, turn, turn.messages))

        yield from self._loop(turn, ask, first)
        return turn.result(given, first.context.run_id)

    def _delta(
        self,
        turn: Turn,
        first: KernelRequest,
        given: Context,
        history: HistoryFilter,
    ) -> Flow[Result]:
        ephemeral = given.conversation_id is None
        if ephemeral:
            context = first.context.replace(conversation_id=f"ephemeral-{new_id()}")
            first = first.replace(context=context)

        def ask(turn: Turn) -> Flow[Completion]:
            return self.chat(next_round(first, turn, turn.fresh))

        try:
            yield from self._loop(turn, ask, first)
        except (Exception, Interrupted):
            if ephemeral:
                yield from _tidied(history.forget(first.context))
            else:
                coming = next_round(first, turn, turn.fresh)
                yield from _tidied(history.settle(coming))
            raise
        if ephemeral:
            yield from _tidied(history.forget(first.context))
        return turn.result(given, first.context.run_id)

    def _loop(self, turn: Turn, ask: Any, first: KernelRequest) -> Flow[None]:
        execute = partial(self.execute, context=first.context)
        return tool_loop(turn, ask, execute, max_rounds=self.max_rounds)

    def _send(self, request: KernelRequest) -> Flow[Completion]:
        """The innermost step: the model itself."""
        service = resolve_service(self._service)
        chat = request.for_service()
        if not request.streaming:
            return (yield from io(service.complete, service.acomplete, chat))
        return (
            yield from stream(
                partial(service.stream, chat),
                partial(service.astream, chat),
                quiet=request.quiet,
            )
        )

    def _run_tool(self, request: ToolRequest) -> Flow[Message]:
        """The innermost step: the tool itself."""
        tool, call = request.tool, request.call
        if tool is None:
            return self.toolbox.unknown(call)
        return (yield from io(tool.run, tool.arun, call, request.context))


def next_round(
    first: KernelRequest, turn: Turn, messages: Sequence[Message]
) -> KernelRequest:
    """Return the request of the round that ``turn`` has come to.

    A tool choice that forces a call holds for the first round only; else the model
    could never give its answer.
    """
    choice = first.tool_choice
    forced = isinstance(choice, dict) or choice in FORCING
    return first.replace(
        messages=tuple(messages),
        round=turn.rounds,
        request_id=f"{first.context.run_id}.{turn.rounds}",
        tool_choice=None if forced and turn.rounds else choice,
    )


def _check_max_rounds(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(
            f"max_rounds must be a whole number of at least 1, not {value!r}."
        )
    return value


def check_input(messages: Input) -> list[Message]:
    """Return the caller's messages as values, or raise `BadInput`."""
    checked = as_messages(messages)
    if not checked:
        raise EmptyBatch("A run needs at least one message; the list is empty.")
    return checked


def _prompt(request: KernelRequest, call_next: ChatCall) -> Flow[Completion]:
    messages = (*request.system_prompts, *request.messages)
    return (yield from call_next(request.replace(messages=messages, system_prompts=())))


def _history_filter(filters: Sequence[object]) -> HistoryFilter | None:
    found: list[Any] = [f for f in filters if getattr(f, "keeps_history", False)]
    if len(found) > 1:
        raise MixedMemory(
            f"{len(found)} memory filters stand in one list; a conversation has one "
            "memory. Remove all but one."
        )
    return found[0] if found else None


def _tidied(flow: Flow[None]) -> Flow[None]:
    """Tidy up after a run: how the run ended counts, not how this did."""
    try:
        yield from flow
    except Exception:  # noqa: BLE001 - logged
        logger.exception("A conversation could not be tidied up after its run.")
