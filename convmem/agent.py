"""An agent: a kernel, a memory provider, tools and instructions, by one name.

It conducts the memory itself: load the history once, show the policy's view before
each model call, append the turn when it ends. No memory filter takes part.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypedDict, Unpack, cast

from convmem.chat import ChatService, Completion
from convmem.exceptions import (
    ConfigurationError,
    Interrupted,
    MixedMemory,
    UnknownAgent,
)
from convmem.kernel.context import (
    Context,
    KernelRequest,
    Prompts,
    Result,
    as_prompts,
    check_context,
    new_id,
)
from convmem.kernel.flow import (
    AsyncIteration,
    Flow,
    Iteration,
    aiterate,
    arun,
    iterate,
    run,
)
from convmem.kernel.kernel import Input, Kernel, check_input, next_round
from convmem.kernel.loop import Turn, tool_loop
from convmem.kernel.tools import Tool
from convmem.memory.connection import refuse_transaction, release_connection
from convmem.memory.forms import Memory, check_form, provider_of
from convmem.memory.keeping import TurnKeeper
from convmem.memory.provider import MemoryProvider
from convmem.owners import NOBODY, Owner


class RunHow(TypedDict, total=False):
    """Keywords of a run, all optional."""

    owner: Owner | None
    #: For filters and tools; nothing of it is stored.
    metadata: Mapping[str, Any] | None
    #: A run attempted again under the same id stores nothing twice.
    run_id: str | None
    #: Fields of `ChatRequest`, such as ``temperature``.
    options: Mapping[str, Any] | None


class Agent:
    """Answers in conversations, and remembers them.

    Give ``llm`` (a `ChatService` or an alias of ``CONVMEM["SERVICES"]``) or ``kernel``.
    ``memory`` is one of five forms: absent or ``"default"`` (the project's default
    memory: the default store, no window), ``{"window": N}``, ``{"store": store}``
    (these two combine), a memory provider, or None/False for none; another string is an
    alias of ``CONVMEM["MEMORIES"]``. ``instructions`` stand before all that the model
    sees and are never stored. Nothing is looked up before the first run, so an agent
    can be built at import; threads may share it.

    Without a conversation id the agent makes one at its first run and keeps it.

    Raises `MixedMemory` for a kernel with a memory filter, `UnknownMemory` for another
    form of ``memory``.
    """

    def __init__(
        self,
        llm: ChatService | str | None = None,
        *,
        kernel: Kernel | None = None,
        memory: Memory = "default",
        tools: Iterable[Tool | Any] = (),
        instructions: Prompts = (),
        conversation_id: str | None = None,
        name: str | None = None,
    ) -> None:
        self.kernel = _kernel(llm, kernel, tools)
        self._memory = check_form(memory)
        self.instructions = as_prompts(instructions)
        check_context(Context(conversation_id=conversation_id))
        self._conversation_id = conversation_id
        self._lock = threading.Lock()
        self.name = name

    def __repr__(self) -> str:
        return f"<Agent {self.name or '(no name)'}>"

    @property
    def conversation_id(self) -> str:
        """The id that runs use which name none."""
        with self._lock:
            if self._conversation_id is None:
                self._conversation_id = new_id()
            return self._conversation_id

    def memory_for(self, owner: Owner = NOBODY) -> MemoryProvider | None:
        """Return the agent's memory provider bound to ``owner``, None without memory.

        Raises `OwnerMismatch` when it is bound to somebody else.
        """
        return provider_of(self._memory, owner)

    # --- the four ways to run it ---

    def run(
        self,
        input: Input,  # noqa: A002 - the word for what is asked
        conversation_id: str | None = None,
        **how: Unpack[RunHow],
    ) -> Result:
        """Answer ``input`` (a string, dict, `Message` or list of these).

        Keywords: see `RunHow`.

        Raises `BadInput` before anything is done; `RunInTransaction`; `RoundsExceeded`;
        `ProviderError`; `TurnNotSaved` when all went well but the memory refused it.
        What had come before a failure is stored, marked ``incomplete`` or ``failed``.
        """
        return run(self.flow(input, conversation_id, **how))

    async def arun(
        self,
        input: Input,  # noqa: A002 - the word for what is asked
        conversation_id: str | None = None,
        **how: Unpack[RunHow],
    ) -> Result:
        """The same in an event loop."""
        return await arun(self.flow(input, conversation_id, **how))

    def stream(
        self,
        input: Input,  # noqa: A002 - the word for what is asked
        conversation_id: str | None = None,
        **how: Unpack[RunHow],
    ) -> Iteration[Result]:
        """Return an iteration over events; its ``result`` is there at the end.

        Leave early with ``close()`` or ``with``: the user's message and what came of
        the answer are stored, marked ``incomplete``.
        """
        return iterate(self.flow(input, conversation_id, streaming=True, **how))

    def astream(
        self,
        input: Input,  # noqa: A002 - the word for what is asked
        conversation_id: str | None = None,
        **how: Unpack[RunHow],
    ) -> AsyncIteration[Result]:
        """The same for ``async for``; leave early with ``aclose()``."""
        return aiterate(self.flow(input, conversation_id, streaming=True, **how))

    def flow(
        self,
        input: Input,  # noqa: A002 - the word for what is asked
        conversation_id: str | None = None,
        *,
        owner: Owner | None = None,
        metadata: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        options: Mapping[str, Any] | None = None,
        streaming: bool = False,
    ) -> Flow[Result]:
        """Check the input at once and return the run as a flow."""
        turn = Turn(check_input(input))
        name = self.conversation_id if conversation_id is None else conversation_id
        context = check_context(
            Context(
                conversation_id=name,
                owner=NOBODY if owner is None else owner,
                metadata=dict(metadata or {}),
                run_id="" if run_id is None else run_id,
            )
        )
        first = self.kernel.request(
            context.started(),
            system_prompts=self.instructions,
            options=options,
            streaming=streaming,
        )
        memory = self.memory_for(context.owner)
        return self._steps(turn, context, first, memory)

    # --- how ---

    def _steps(
        self,
        turn: Turn,
        given: Context,
        first: KernelRequest,
        memory: MemoryProvider | None,
    ) -> Flow[Result]:
        if memory is None:
            yield from self._forgetful(turn, first)
        else:
            yield from self._remembering(turn, first, memory)
        return turn.result(given, first.context.run_id)

    def _forgetful(self, turn: Turn, first: KernelRequest) -> Flow[None]:
        def ask(turn: Turn) -> Flow[Completion]:
            return self.kernel.chat(next_round(first, turn, turn.messages))

        return self._loop(turn, ask, first)

    def _remembering(
        self, turn: Turn, first: KernelRequest, memory: MemoryProvider
    ) -> Flow[None]:
        keeper = TurnKeeper(memory, first.context)
        yield from refuse_transaction(memory)

        def ask(turn: Turn) -> Flow[Completion]:
            messages = yield from keeper.view(turn.messages)
            yield from release_connection(memory)
            return (yield from self.kernel.chat(next_round(first, turn, messages)))

        try:
            yield from keeper.load()
            yield from self._loop(turn, ask, first)
        except (Exception, Interrupted) as error:
            yield from keeper.keep_broken(turn, getattr(error, "partial", None))
            raise
        yield from keeper.keep(turn.messages)

    def _loop(self, turn: Turn, ask: Any, first: KernelRequest) -> Flow[None]:
        return tool_loop(
            turn,
            ask,
            lambda call: self.kernel.execute(call, first.context),
            max_rounds=self.kernel.max_rounds,
        )


def _kernel(
    llm: ChatService | str | None, kernel: Kernel | None, tools: Iterable[Any]
) -> Kernel:
    if (llm is None) == (kernel is None):
        raise ConfigurationError("An agent needs llm=... or kernel=..., one of them.")
    if kernel is None:
        return Kernel(cast("ChatService | str", llm), tools=tools)
    if not isinstance(kernel, Kernel):
        raise ConfigurationError(
            f"kernel must be a Kernel, not {type(kernel).__name__}; "
            "a chat service goes to llm."
        )
    if kernel.keeps_history:
        raise MixedMemory(
            "This kernel has a memory filter, and the agent keeps the memory itself: "
            "take the filter out, or call the kernel without an agent."
        )
    extra = tuple(tools)
    return kernel.with_tools(extra) if extra else kernel


# --- agents by name ---

_agents: dict[str, Agent] = {}
_agents_lock = threading.Lock()


def register_agent(name: str, agent: Agent, *, replace: bool = False) -> Agent:
    """Make ``agent`` known to the API under ``name``, and return it.

    Raises `ConfigurationError` when another agent has the name, unless ``replace``.
    """
    if not name:
        raise ConfigurationError("An agent needs a name to be registered under.")
    if not isinstance(agent, Agent):
        raise ConfigurationError(
            f"register_agent() takes an Agent, not {type(agent).__name__}."
        )
    with _agents_lock:
        if not replace and _agents.get(name, agent) is not agent:
            raise ConfigurationError(
                f"An agent called {name!r} is registered already; take another name "
                "or pass replace=True."
            )
        _agents[name] = agent
    return agent


def unregister_agent(name: str) -> None:
    """Forget the agent. Raises `UnknownAgent`."""
    with _agents_lock:
        if _agents.pop(name, None) is None:
            raise _unknown(name)


def get_agent(name: str) -> Agent:
    """Return the agent registered under ``name``, or raise `UnknownAgent`."""
    with _agents_lock:
        found = _agents.get(name)
    if found is None:
        raise _unknown(name)
    return found


def registered_agents() -> dict[str, Agent]:
    """Return a copy of the registry, in order of names."""
    with _agents_lock:
        return dict(sorted(_agents.items()))


@contextlib.contextmanager
def override_agent(name: str, agent: Agent) -> Iterator[Agent]:
    """Put ``agent`` in the place of ``name`` for a while, for tests."""
    with _agents_lock:
        before = _agents.get(name)
    register_agent(name, agent, replace=True)
    try:
        yield agent
    finally:
        with _agents_lock:
            if before is None:
                _agents.pop(name, None)
            else:
                _agents[name] = before


def _unknown(name: object) -> UnknownAgent:
    return UnknownAgent(
        f"No agent is called {name!r:.80}; register it with register_agent().",
        agent_name=name,
    )
