"""How the offline model answers: by rules, from the messages of one request alone.

It knows nothing else. What an earlier request said is gone unless this request's
messages hold it, which is what makes it a fair witness of a conversation's memory.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WireMessage = Mapping[str, Any]
WireTool = Mapping[str, Any]
#: Roles of results; ``function`` is that of OpenAI's first, still accepted calls.
RESULTS = frozenset({"tool", "function"})


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an offered tool; ``arguments`` is JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """Either a text or calls of tools."""

    text: str = ""
    calls: tuple[Call, ...] = ()


def reply_to(
    messages: Sequence[WireMessage],
    tools: Sequence[WireTool] = (),
    tool_choice: str | Mapping[str, Any] | None = None,
) -> Reply:
    """Return the answer to a list of messages of OpenAI's shape.

    ``tools`` and ``tool_choice`` are OpenAI's too. The same arguments always give the
    same answer.
    """
    if messages[-1].get("role") in RESULTS:
        return Reply(text=_from_results(messages))
    asked = next(
        (text_of(m) for m in reversed(messages) if m.get("role") == "user"), ""
    )
    calls = _tool_calls(asked, tools, tool_choice)
    if calls:
        return Reply(calls=calls)
    return Reply(text=_in_words(asked, messages))


def text_of(message: WireMessage) -> str:
    """Return a message's text; parts that are no text become ``[image_url]`` etc."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return " ".join(_part_text(part) for part in content or ())


def _part_text(part: Any) -> str:
    if not isinstance(part, Mapping):
        return str(part)
    text = part.get("text", part.get("refusal"))
    return text if isinstance(text, str) else f"[{part.get('type', 'part')}]"


# --- answers in words ---

_COUNT = re.compile(r"\bhow many messages\b", re.I)
_FIRST = re.compile(r"\b(?:my first message|what did i say first)\b", re.I)
_SUMMARY = re.compile(
    r"\b(?:summari[sz]e|summary|what (?:did|have) we (?:talk|discuss|sp[eo]k)\w*)", re.I
)
_ASKS_FACT = re.compile(
    r"\b(?:what(?:'s|’s| is| was| are)|(?:do|can) you (?:know|remember|tell me)"
    r"|remind me(?: of)?|tell me)\s+(?:what\s+)?my (?P<what>[\w -]{1,60}?)"
    r"(?:\s+(?:is|was|are))?\s*\?",
    re.I,
)
_WHO = re.compile(r"\bwho am i\b", re.I)
_WHERE = re.compile(r"\bwhere do i live\b", re.I)
_GREETING = re.compile(r"^\W*(?:hello|hi|hey|good (?:morning|day|evening))\b", re.I)
_TIME_OR_WEATHER = re.compile(r"\bwhat time\b|\bweather\b", re.I)

_TOLD = (
    re.compile(
        r"\bmy (?P<what>[\w -]{1,60}?) (?:is|are) (?P<value>[^.;!?。\n]+)", re.I
    ),
    re.compile(r"\b(?P<name>i am called|call me) (?P<value>[^.;!?。\n]+)", re.I),
    re.compile(r"\bi (?P<home>live) in (?P<value>[^.;!?。\n]+)", re.I),
)
_CLAUSE_END = re.compile(r"(?<=[.!?。\n])|,?\s+(?:and|but)\s+(?=my |i |call me )", re.I)
_TAIL = re.compile(r"\s*(?:,\s*)?\b(?:and|but|so)\b.*$|,.*$", re.I)


def facts(messages: Sequence[WireMessage]) -> dict[str, str]:
    """Return what the user messages tell, for example ``{"name": "Ada"}``; of two
    values the later one counts."""
    found: dict[str, str] = {}
    for message in messages:
        if message.get("role") == "user":
            found.update(_told(text_of(message)))
    return found


def _told(text: str) -> Iterator[tuple[str, str]]:
    for clause in _CLAUSE_END.split(text):
        if clause.rstrip().endswith("?"):
            continue
        for pattern in _TOLD:
            for match in pattern.finditer(clause):
                named = match.groupdict()
                what = named.get("what") or ("name" if "name" in named else "home")
                value = _TAIL.sub("", match["value"]).strip()
                if value:
                    yield what.lower().strip(), value


def _in_words(asked: str, messages: Sequence[WireMessage]) -> str:
    about = _asked_about(asked)
    if about is not None:
        return _recall(about, messages)
    if _COUNT.search(asked):
        return _count(messages)
    if _FIRST.search(asked):
        return f"The first message of yours that I was sent is: {_first(messages)}"
    if _SUMMARY.search(asked):
        return _summary(messages)
    if _TIME_OR_WEATHER.search(asked) or _SUM.search(asked):
        return "I was offered no tool for that, and I do not guess."
    told = dict(_told(asked))
    if told:
        return _noted(told)
    if _GREETING.search(asked):
        return "Hello. Tell me your name, and ask me for it later."
    return f"You said: {_quote(asked)} I was sent {_plural(len(messages), 'message')}."


def _asked_about(asked: str) -> str | None:
    if _WHO.search(asked):
        return "name"
    if _WHERE.search(asked):
        return "home"
    match = _ASKS_FACT.search(asked)
    if match is None or _FIRST.search(asked):
        return None
    return match["what"].lower().strip()


def _recall(about: str, messages: Sequence[WireMessage]) -> str:
    value = facts(messages).get(about)
    if value is not None:
        return (
            f"You live in {value}." if about == "home" else f"Your {about} is {value}."
        )
    what = "where you live" if about == "home" else f"your {about}"
    sent = _plural(len(messages), "message")
    return f"I was not told {what}: it is not in the {sent} that I was sent."


def _noted(told: Mapping[str, str]) -> str:
    if "name" in told:
        return f"Nice to meet you, {told['name']}."
    noted = ", ".join(
        f"you live in {value}" if what == "home" else f"your {what} is {value}"
        for what, value in told.items()
    )
    return f"Noted: {noted}."


def _count(messages: Sequence[WireMessage]) -> str:
    by_role = Counter(str(message.get("role")) for message in messages)
    roles = ", ".join(f"{count} {role}" for role, count in sorted(by_role.items()))
    return f"I was sent {_plural(len(messages), 'message')}: {roles}."


def _first(messages: Sequence[WireMessage]) -> str:
    users = [message for message in messages if message.get("role") == "user"]
    return _quote(text_of(users[0])) if users else "none"


def _summary(messages: Sequence[WireMessage], most: int = 5) -> str:
    users = [text_of(m) for m in messages if m.get("role") == "user"][:-1]
    if not users:
        return "There is nothing before this message."
    last = users[-most:]
    things = "thing" if len(last) == 1 else f"{len(last)} things"
    return f"The last {things} you said: {'; '.join(map(_quote, last))}."


def _from_results(messages: Sequence[WireMessage]) -> str:
    """Put into words the tool results at the end of the list, in order."""
    start = len(messages)
    while start and messages[start - 1].get("role") in RESULTS:
        start -= 1
    calls = messages[start - 1].get("tool_calls") or () if start else ()
    names = {call.get("id"): call.get("function", {}).get("name") for call in calls}
    return " ".join(
        f"{names.get(result.get('tool_call_id')) or result.get('name', 'The tool')} "
        f"answers: "
        f"{text_of(result).strip().rstrip('.')}."
        for result in messages[start:]
    )


def _quote(text: str, most: int = 80) -> str:
    line = " ".join(text.split())
    return f"“{line if len(line) <= most else line[: most - 1].rstrip() + '…'}”"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


# --- tools ---

_EXPRESSION = re.compile(
    r"\(*-?\d+(?:\.\d+)?\)*(?:\s*[-+*/^]\s*\(*-?\d+(?:\.\d+)?\)*)+"
)
#: A question, so that a date such as 2024-05-15 is no sum.
_SUM = re.compile(
    rf"(?:\bwhat(?:'s|’s| is)|\bcalculate|\bcompute|\bhow much is|^)\s*"
    rf"{_EXPRESSION.pattern}",
    re.I,
)
_PLACES = re.compile(
    r"\b(?:in|at|for)\s+(?P<places>[A-Z][\w'’-]*(?:\s[A-Z][\w'’-]*)*"
    r"(?:(?:\s*,\s*|\s+and\s+)(?:in\s+)?[A-Z][\w'’-]*(?:\s[A-Z][\w'’-]*)*)*)"
)
_BETWEEN = re.compile(r"\s*,\s*(?:in\s+)?|\s+and\s+(?:in\s+)?")
_CODE = re.compile(r"\b[A-Z]{1,6}-?\d+\b|#\d+")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_TOPICS = (
    (re.compile(r"\bwhat time\b|\bwhat(?:'s| is) the time\b", re.I), "time clock"),
    (re.compile(r"\bweather\b|\bforecast\b", re.I), "weather forecast"),
    (_SUM, "calculate calculator arithmetic math"),
)
_PLACE_NAMES = frozenset({"city", "place", "location", "town", "where", "region"})
_SUM_NAMES = frozenset({"expression", "formula", "calculation", "sum"})


def _tool_calls(
    asked: str, tools: Sequence[WireTool], choice: str | Mapping[str, Any] | None
) -> tuple[Call, ...]:
    offered = [tool["function"] for tool in tools if tool.get("type") == "function"]
    if not offered or choice == "none":
        return ()
    if isinstance(choice, Mapping):
        wanted = choice.get("function", {}).get("name")
        function = next((f for f in offered if f["name"] == wanted), None)
    else:
        function = _fitting(asked, offered)
        if function is None and choice == "required":
            function = offered[0]
    return () if function is None else tuple(_calls_of(function, asked))


def _fitting(
    asked: str, offered: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """Return the offered function that the question is about, if there is one."""
    for asks, words in _TOPICS:
        if asks.search(asked):
            for function in offered:
                if _words(function["name"]) & set(words.split()):
                    return function
    said = _words(asked)
    return next((f for f in offered if _words(f["name"]) <= said), None)


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", text.lower()))


def _calls_of(function: Mapping[str, Any], asked: str) -> Iterator[Call]:
    schema = function.get("parameters") or {}
    match = _PLACES.search(asked)
    places = _BETWEEN.split(match["places"]) if match else []
    several = places if _PLACE_NAMES & set(schema.get("properties", {})) else []
    for place in several or places[:1] or [""]:
        arguments = dict(_arguments(schema, asked, place))
        yield Call(function["name"], json.dumps(arguments, ensure_ascii=False))


def _arguments(
    schema: Mapping[str, Any], asked: str, place: str
) -> Iterator[tuple[str, Any]]:
    numbers = iter(_NUMBER.findall(asked))
    required = schema.get("required", ())
    for name, property_schema in schema.get("properties", {}).items():
        value = _value(name, property_schema, asked, place, numbers)
        if value is None and name in required:
            value = _stand_in(property_schema, asked)
        if value is not None:
            yield name, value


def _value(
    name: str,
    schema: Mapping[str, Any],
    asked: str,
    place: str,
    numbers: Iterator[str],
) -> Any:
    """Return what the question says for one parameter, or None."""
    if "enum" in schema:
        return next(
            (v for v in schema["enum"] if str(v).lower() in asked.lower()), None
        )
    kind = schema.get("type", "string")
    if kind in ("number", "integer"):
        number = next(numbers, None)
        return number if number is None else json.loads(number)
    if kind != "string":
        return None
    if name in _PLACE_NAMES:
        return place or None
    pattern = _EXPRESSION if name in _SUM_NAMES else _CODE
    match = pattern.search(asked)
    return match[0] if match else None


def _stand_in(schema: Mapping[str, Any], asked: str) -> Any:
    """Return a value of the right type for a required parameter that was not named."""
    if "enum" in schema:
        return schema["enum"][0]
    stand_ins = {"number": 0, "integer": 0, "boolean": False, "array": [], "object": {}}
    return stand_ins.get(schema.get("type", "string"), asked)
