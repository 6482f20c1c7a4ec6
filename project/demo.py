"""What `manage.py demo` shows, step by step; each step checks what it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from django.conf import settings

from convmem import (
    Agent,
    Context,
    DefaultMemoryProvider,
    Kernel,
    Message,
    Owner,
    memory_filter,
)
from convmem.chat import TextDelta, ToolResultDelta
from convmem.handlers import stores
from convmem.memory import History
from convmem.validation import storable
from project.demo_output import Stage, gist, roles, seen_and_left_out
from project.tools import calculate, current_time
from project.transcripts import read_transcript

TRANSCRIPT = Path(__file__).resolve().parent / "data" / "bicycle_workshop.json"
KERNEL, AGENT, TOOLS = "demo-kernel", "demo-agent", "demo-tools"
TOLD = "My name is Ada."
ASKED = "What is my name?"
WINDOW = 4


class Demo:
    """The steps and their checks.

    ``owner`` has the conversations, ``login`` is that user's name. The offline model is
    held to its every word (``strict``); of another only what it must be able to do is
    asked.
    """

    def __init__(self, stage: Stage, *, login: str, owner: Owner, strict: bool) -> None:
        self.stage = stage
        self.login = login
        self.owner = owner
        self.strict = strict
        self.store = stores["default"].for_owner(owner)

    def run(self, transcript: Path | None = None, index: int = 0) -> None:
        """Show every step. Raises `PromiseBroken` at the first that fails."""
        for conversation_id in (KERNEL, AGENT, TOOLS):
            self.store.clear(conversation_id)  # each demo starts at the start
        self.kernel()
        self.agent()
        self.tools()
        self.window()
        self.new_process()
        self.transcript(transcript or TRANSCRIPT, index)

    def run_small(self) -> None:
        """Show the steps that a model too small to answer well can show: what it was
        sent is checked, not what it says."""
        for conversation_id in (KERNEL, AGENT):
            self.store.clear(conversation_id)
        self._twice_by_kernel()
        self._twice_by_agent()

    # --- steps ---

    def kernel(self) -> None:
        """Two invocations of a kernel, each with one new message."""
        answer = self._twice_by_kernel()
        self.stage.promise("Ada" in answer, "The second call knows the first.")
        stranger = Kernel("default").invoke(ASKED).text
        self.stage.note(f"Without the memory filter the answer is: {stranger}")
        if self.strict:
            self.stage.promise("Ada" not in stranger, "It was the memory that knew.")

    def agent(self) -> None:
        """Two runs of an agent."""
        answer = self._twice_by_agent()
        self.stage.promise("green" in answer, "The second run knows the first.")

    def tools(self) -> None:
        """A streamed run with two tool calls side by side."""
        self.stage.title("Tools, streamed", "plain functions with docstrings")
        agent = Agent(
            llm="default",
            memory={"store": self.store},
            tools=[current_time, calculate],
            instructions="Use the tools for times and sums.",
        )
        asked = "What time is it in Lisbon and in Tokyo?"
        self.stage.said("user", asked)
        results, pieces = [], []
        for event in agent.stream(asked, conversation_id=TOOLS):
            if isinstance(event, ToolResultDelta):
                results.append(event.message)
                self.stage.said("tool", event.message.text)
            elif isinstance(event, TextDelta):
                pieces.append(event.text)
        self.stage.said("assistant", "".join(pieces))
        self.stage.note(f"Pieces of the answer as it came: {len(pieces)}.")
        ran = len(results) == 2 if self.strict else bool(results)
        self.stage.promise(
            ran and not any(result.is_error for result in results),
            "The tools ran, and the model answered from their results.",
        )
        stored = self.store.get(TOOLS)
        self.stage.promise(
            stored[0].text == asked and stored[-1].text == "".join(pieces),
            f"The whole turn is stored: {roles(stored)}.",
        )

    def window(self) -> None:
        """The full history beside what a window shows of it."""
        self.stage.title("A window", f"the model sees the newest {WINDOW} messages")
        windowed = DefaultMemoryProvider(self.store, WINDOW)
        agent = Agent(llm="default", memory=windowed, tools=[calculate])
        answers = [
            self._exchange(agent, TOOLS, said)
            for said in (TOLD, "What is 12 * (3 + 4)?", ASKED)
        ]
        if self.strict:
            self.stage.promise("Ada" not in answers[-1], "The name was out of sight.")
        stored = History(self.store.get(TOOLS))
        view = windowed.plan(TOOLS, stored)
        self.stage.show(seen_and_left_out(stored, view))
        self.stage.promise(
            len(view.messages) + len(view.dropped) == len(stored) > len(view.messages),
            "Each stored message is seen, or left out for a reason.",
        )
        whole = Agent(llm="default", memory={"store": self.store})
        answer = self._exchange(whole, TOOLS, ASKED)
        self.stage.promise("Ada" in answer, "Without the window it is all there.")

    def new_process(self) -> None:
        """Another process goes on with the agent's conversation."""
        self.stage.title("A new process", "it shares only the database")
        arguments = ["ask", AGENT, ASKED, "--user", self.login]
        self.stage.note(f"$ manage.py ask {AGENT} '{ASKED}' --user {self.login}")
        manage = Path(settings.BASE_DIR) / "manage.py"
        done = subprocess.run(  # noqa: S603 - our own command, fixed arguments
            [sys.executable, str(manage), *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.stage.said("assistant", done.stdout.strip() or done.stderr.strip())
        self.stage.promise(
            done.returncode == 0 and "Ada" in done.stdout,
            "The conversation outlives the process that began it.",
        )

    def transcript(self, path: Path, index: int) -> None:
        """A chat from a file, imported and continued."""
        self.stage.title("A transcript, imported and continued", path.name)
        conversation_id = f"import-{path.stem}-{index}"[:255]
        messages = read_transcript(path, index)
        self.store.clear(conversation_id)
        self.store.add(conversation_id, messages)
        self._show_import(messages)
        agent = Agent(llm="default", memory={"store": self.store})
        if path == TRANSCRIPT:
            answer = self._exchange(agent, conversation_id, ASKED)
            self.stage.promise("Noor" in answer, "It knows a name from the file.")
        else:
            answer = self._exchange(agent, conversation_id, "What did we talk about?")
            told = [gist(m, 20).rstrip("…") for m in messages if m.role == "user"]
            last = next((text for text in reversed(told) if text != "(no text)"), "")
            kept = last in answer if self.strict else bool(answer)
            self.stage.promise(kept, "It goes on from what the file tells.")
        stored = self.store.get(conversation_id)
        self.stage.promise(
            [_bare(m) for m in stored[: len(messages)]]
            == [_as_stored(m) for m in messages],
            f"All {len(messages)} imported messages are stored as they came.",
        )

    # --- parts of steps ---

    def _twice_by_kernel(self) -> str:
        self.stage.title("A kernel with a memory filter", "it is sent one new message")
        kernel = Kernel("default", filters=[memory_filter(self.store)])
        context = Context(conversation_id=KERNEL)
        sent = []
        for said in (TOLD, ASKED):
            self.stage.said("user", said)
            result = kernel.invoke(said, context=context)
            self.stage.said("assistant", result.text)
            sent.append(_input_tokens(result.reply))
        self._sent_more(sent)
        stored = self.store.get(KERNEL)
        self.stage.promise(
            [m.role for m in stored] == ["user", "assistant"] * 2,
            "Four messages are stored, each once.",
        )
        return result.text

    def _twice_by_agent(self) -> str:
        self.stage.title("An agent", "it loads, asks and stores by itself")
        agent = Agent(llm="default", memory={"store": self.store})
        told = "My name is Ada, and my favourite colour is dark green."
        self._exchange(agent, AGENT, told)
        answer = self._exchange(agent, AGENT, "What is my favourite colour?")
        stored = self.store.get(AGENT)
        self._sent_more([_input_tokens(m) for m in stored if m.role == "assistant"])
        return answer

    def _exchange(self, agent: Agent, conversation_id: str, said: str) -> str:
        self.stage.said("user", said)
        answer = agent.run(said, conversation_id=conversation_id).text
        self.stage.said("assistant", answer)
        return answer

    def _sent_more(self, sent: list[int | None]) -> None:
        first, second = sent[0], sent[-1]
        if first is None or second is None:
            self.stage.note("The model does not tell how many tokens it was sent.")
            return
        self.stage.promise(
            second > first,
            f"The model was sent {first} tokens, then {second}: the history is there.",
        )

    def _show_import(self, messages: list[Message]) -> None:
        self.stage.note(f"{len(messages)} messages: {roles(messages)}")
        for message in messages[-2:]:
            self.stage.said(message.role, gist(message, most=160))


def _input_tokens(message: Message) -> int | None:
    return message.usage.input_tokens if message.usage else None


def _as_stored(message: Message) -> Message:
    """Return the message as a store keeps it, without what it adds."""
    kept, _ = storable(message, max_bytes=sys.maxsize)
    return _bare(kept)


def _bare(message: Message) -> Message:
    return message.replace(position=None, created_at=None)
