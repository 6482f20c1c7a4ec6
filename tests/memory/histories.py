"""Short names for messages, and hypothesis strategies of whole histories."""

from __future__ import annotations

from hypothesis import strategies as st

from convmem.messages import ImagePart, Message, ReasoningPart, TextPart, ToolCall


def S(text="rules", **fields):
    return Message.system(text, **fields)


def D(text="house rules", **fields):
    return (
        Message.developer(text, **fields)
        if hasattr(Message, "developer")
        else (Message(role="developer", content=text, **fields))
    )


def U(text="question", **fields):
    return Message.user(text, **fields)


def A(text="answer", **fields):
    return Message.assistant(text, **fields)


def C(*ids, text=None, **fields):
    """An assistant message that calls a tool for each id."""
    calls = tuple(ToolCall(id=i, name=f"tool_{i}", arguments="{}") for i in ids)
    return Message.assistant(text, tool_calls=calls, **fields)


def T(call_id, text="result", **fields):
    return Message.tool(call_id, text, **fields)


def R(text="thinking"):
    """An assistant message of nothing but reasoning."""
    return Message.assistant((ReasoningPart(text=text, redacted="x"),))


def numbered(messages, first=1):
    """The messages as a store would return them."""
    return [m.replace(position=first + i) for i, m in enumerate(messages)]


texts = st.sampled_from(
    ["a", "Hello there, how are you?", "こんにちは", "x" * 90, "🙂"]
)
contents = st.one_of(
    texts,
    texts.map(lambda text: (TextPart(text=text), ImagePart(url="https://e.org/i.png"))),
    texts.map(lambda text: (ReasoningPart(text="hm"), TextPart(text=text))),
)
ids = st.sampled_from(["x", "y", "z"])
statuses = st.sampled_from(["complete"] * 6 + ["failed", "incomplete"])


@st.composite
def rounds(draw):
    """Calls with all their results, in any order; ids may repeat."""
    called = draw(st.lists(ids, min_size=1, max_size=3))
    results = [T(i, draw(texts)) for i in draw(st.permutations(called))]
    text = draw(st.one_of(st.none(), texts))
    return [C(*called, text=text), *results]


@st.composite
def valid_turns(draw):
    turn = [U(draw(contents))]
    for _ in range(draw(st.integers(0, 2))):
        if draw(st.integers(0, 3)) == 0 and len(turn) > 1:
            turn.append(R())
        turn += draw(rounds())
    if draw(st.integers(0, 5)):
        if draw(st.integers(0, 4)) == 0:
            turn.append(R())
        turn.append(A(draw(contents)))
    return turn


@st.composite
def valid_histories(draw):
    """Histories that any provider accepts, ending in an answer or in an open turn."""
    system = draw(st.lists(st.one_of(texts.map(S), texts.map(D)), max_size=2))
    return [*system, *sum(draw(st.lists(valid_turns(), max_size=6)), [])]


one_message = st.one_of(
    st.builds(S, st.sampled_from(["be brief", ""])),
    st.builds(D),
    st.builds(U, st.one_of(contents, st.just("")), status=statuses),
    st.builds(A, st.one_of(contents, st.sampled_from(["", None])), status=statuses),
    st.builds(
        lambda called, text, status: C(*called, text=text, status=status),
        st.lists(ids, min_size=1, max_size=3),
        st.one_of(st.none(), texts),
        statuses,
    ),
    st.builds(T, ids, st.one_of(texts, st.just(""))),
    st.builds(R),
    st.just(U("", status="corrupt")),
)


@st.composite
def broken_histories(draw):
    """Anything in any order, as stored: numbered, some replies superseded."""
    messages = numbered(draw(st.lists(one_message, max_size=24)))
    for index in range(1, len(messages)):
        if messages[index].role == "assistant" and draw(st.integers(0, 9)) == 0:
            gone = (draw(st.integers(1, index)),)
            messages[index] = messages[index].replace(supersedes=gone)
    return messages


histories = st.one_of(valid_histories(), broken_histories())
