"""Tools: the schema that a signature gives, checked arguments, results, failures."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import datetime
import decimal
import enum
import functools
import json
import logging
import threading
import uuid
from typing import Annotated, Literal

import msgspec
import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict  # pydantic asks for it before 3.12

from convmem.exceptions import InvalidTool, InvalidWindow, ToolError
from convmem.kernel.context import Context
from convmem.kernel.tools import Tool, Toolbox, tool
from convmem.messages import ImagePart, Message, TextPart, ToolCall


class Unit(enum.Enum):
    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


class Place(BaseModel):
    city: str
    country: str = "DE"


class Stop(TypedDict):
    name: str


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Pair(msgspec.Struct):
    left: int
    right: int


def call(arguments="", name="f", call_id="c1"):
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(id=call_id, name=name, arguments=text)


def run(function, arguments="", *, context=None, is_async=False):
    made = function if isinstance(function, Tool) else Tool(function, name="f")
    context = context or Context()
    if is_async:
        return asyncio.run(made.arun(call(arguments), context))
    return made.run(call(arguments), context)


both = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


# --- schema ---


def weather(
    city: str,
    days: int = 1,
    unit: Unit = Unit.CELSIUS,
    tone: Literal["short", "long"] = "short",
    limit: Annotated[float | None, Field(ge=0, description="Stop above it.")] = None,
):
    """Tell the weather.

    Only for the coming days.

    Args:
        city: Name of the city.
        days: How many days to look ahead.
        limit: Not shown, since the field has its own.
    """
    return f"{city} {days} {unit.value} {tone} {limit}"


def test_the_schema_comes_from_signature_and_docstring():
    spec = Tool(weather).spec
    assert spec.name == "weather"
    assert spec.description == "Tell the weather.\n\nOnly for the coming days."
    properties = spec.parameters["properties"]
    assert spec.parameters["type"] == "object"
    assert spec.parameters["required"] == ["city"]
    assert spec.parameters["additionalProperties"] is False
    assert properties["city"] == {
        "type": "string",
        "description": "Name of the city.",
    }
    assert properties["days"] == {
        "type": "integer",
        "default": 1,
        "description": "How many days to look ahead.",
    }
    assert properties["tone"]["enum"] == ["short", "long"]
    assert properties["unit"]["default"] == "celsius"
    assert spec.parameters["$defs"]["Unit"]["enum"] == ["celsius", "fahrenheit"]
    assert properties["limit"]["description"] == "Stop above it."
    assert properties["limit"]["anyOf"][0] == {"type": "number", "minimum": 0}


def test_a_schema_is_plain_json_and_has_no_titles():
    text = json.dumps(Tool(weather).spec.parameters["properties"])
    assert "title" not in text


@pytest.mark.parametrize(
    "doc",
    [
        "Add.\n\n:param a: first number",
        "Add.\n\nParameters\n----------\na : int\n    first number",
        "Add.\n\nArgs:\n    a (int): first number",
    ],
    ids=["sphinx", "numpy", "google"],
)
def test_every_style_of_docstring_describes_parameters(doc):
    def add(a: int):
        return a

    add.__doc__ = doc
    spec = Tool(add).spec
    assert spec.description == "Add."
    assert spec.parameters["properties"]["a"]["description"] == "first number"


def test_no_parameters_give_an_empty_object():
    def now():
        return "12:00"

    schema = Tool(now).spec.parameters
    assert (schema["type"], schema["properties"]) == ("object", {})


def test_nested_models_are_defined_and_built():
    def visit(place: Place, stops: list[Stop]):
        assert isinstance(place, Place)
        return f"{place.city} {place.country} {stops[0]['name']}"

    made = Tool(visit)
    assert set(made.spec.parameters["$defs"]) == {"Place", "Stop"}
    result = run(made, {"place": {"city": "Ulm"}, "stops": [{"name": "inn"}]})
    assert result.content == "Ulm DE inn"


@pytest.mark.parametrize("name", ["json", "copy", "schema", "dict", "validate"])
def test_a_parameter_may_be_called_like_a_method_of_the_validator(name):
    scope = {}
    exec(f"def f({name}: int): return {name}", scope)
    made = Tool(scope["f"])
    assert list(made.spec.parameters["properties"]) == [name]
    assert run(made, {name: 3}).content == "3"


def test_private_and_positional_only_parameters_work():
    def f(a: int, /, _b: int, *, c: int = 3):
        return [a, _b, c]

    assert run(f, {"a": 1, "_b": 2}).content == "[1,2,3]"


def test_free_keywords_are_taken():
    def f(a: int, **rest: int):
        return {"a": a, **rest}

    assert Tool(f).spec.parameters["additionalProperties"] is True
    assert json.loads(run(f, {"a": 1, "z": 2}).content) == {"a": 1, "z": 2}


def test_a_default_without_json_is_not_shown_and_is_used():
    marker = object()

    def f(a=marker):
        return "default" if a is marker else "given"

    assert Tool(f).spec.parameters["properties"]["a"] == {}
    assert run(f).content == "default"


def test_a_field_as_default_value_counts():
    def f(a: int = Field(gt=0, description="positive")):
        return a

    schema = Tool(f).spec.parameters
    assert schema["required"] == ["a"]
    assert schema["properties"]["a"]["description"] == "positive"
    assert run(f, {"a": 0}).is_error
    assert run(f, {"a": 2}).content == "2"


def test_methods_partials_and_callable_objects_are_tools():
    class Shop:
        def price(self, item: str) -> str:
            """Tell a price."""
            return f"{item}: 3"

        def __call__(self, item: str) -> str:
            return f"called {item}"

    method = Tool(Shop().price)
    assert (method.name, method.spec.description) == ("price", "Tell a price.")
    assert run(method, {"item": "tea"}).content == "tea: 3"
    assert run(Tool(Shop(), name="shop"), {"item": "tea"}).content == "called tea"

    def add(a: int, b: int):
        """Add."""
        return a + b

    partial = Tool(functools.partial(add, b=2), name="add_two")
    assert partial.spec.description == "Add."
    assert run(partial, {"a": 1}).content == "3"


def test_the_decorator_keeps_the_function_callable():
    @tool
    def double(n: int) -> int:
        """Double it."""
        return 2 * n

    @tool(name="other-name", description="Said otherwise.")
    def thrice(n: int) -> int:
        """Thrice it."""
        return 3 * n

    assert (double(4), thrice(4)) == (8, 12)
    assert double.__name__ == "double"
    assert thrice.spec.name == "other-name"
    assert thrice.spec.description == "Said otherwise."


def test_a_context_is_filled_in_and_not_shown():
    def who(question: str, context: Context):
        return f"{question} {context.metadata['user']}"

    def maybe(context: Context | None = None):
        return context.run_id

    assert list(Tool(who).spec.parameters["properties"]) == ["question"]
    context = Context(metadata={"user": "Ada"}, run_id="r1")
    assert run(who, {"question": "who?"}, context=context).content == "who? Ada"
    assert Tool(maybe).spec.parameters["properties"] == {}
    assert run(maybe, context=context).content == "r1"


def test_a_model_cannot_set_the_context():
    def who(context: Context):
        return context.run_id

    result = run(who, {"context": {"run_id": "forged"}})
    assert result.is_error
    assert "context" in result.content


# --- refused ---


@pytest.mark.parametrize("name", ["", "a b", "ü", "x" * 65, "a\n", "a.b", "<lambda>"])
def test_a_name_that_providers_refuse_is_refused(name):
    with pytest.raises(InvalidTool, match="no name for a tool"):
        Tool(lambda: 1, name=name or None)


@pytest.mark.parametrize("name", ["a", "A-b_9", "x" * 64])
def test_a_name_that_providers_take_is_taken(name):
    assert Tool(lambda: 1, name=name).name == name


def test_what_is_not_callable_is_refused():
    with pytest.raises(InvalidTool, match="must be callable, not int"):
        Tool(3)


def test_star_args_are_refused():
    def f(*items: int):
        return items

    with pytest.raises(InvalidTool, match=r"'\*items' has no name"):
        Tool(f)


def test_a_type_without_schema_is_refused_by_name():
    class Opaque:
        pass

    def f(a):
        return a

    f.__annotations__["a"] = Opaque
    with pytest.raises(InvalidTool, match="Tool 'f': no JSON schema"):
        Tool(f)


def test_an_annotation_that_cannot_be_resolved_is_refused():
    def f(a: Nowhere):  # noqa: F821
        return a

    with pytest.raises(InvalidTool, match="module level"):
        Tool(f)


def test_two_tools_of_one_name_are_refused():
    def f():
        return 1

    with pytest.raises(InvalidTool, match="Two tools are called 'f'"):
        Toolbox([f, Tool(f)])


# --- arguments ---


@both
def test_arguments_are_checked_and_converted(is_async):
    result = run(
        weather, {"city": "Ulm", "days": "3", "unit": "fahrenheit"}, is_async=is_async
    )
    assert result.content == "Ulm 3 fahrenheit short None"
    assert result.role == "tool"
    assert (result.tool_call_id, result.name, result.is_error) == ("c1", "f", False)


@both
@pytest.mark.parametrize("empty", ["", "  ", "{}", "\n"])
def test_no_arguments_may_be_empty_text(empty, is_async):
    assert run(lambda: "ok", empty, is_async=is_async).content == "ok"


@both
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"city":', "not valid JSON"),
        ("[1]", "one JSON object, not list"),
        ("null", "one JSON object, not NoneType"),
        ('{"days": 1}', "city: Field required"),
        ('{"city": "x", "days": "many"}', "days: Input should be a valid integer"),
        ('{"city": "x", "unit": "kelvin"}', "unit: Input should be 'celsius' or"),
        ('{"city": "x", "rain": 1}', "rain: Extra inputs are not permitted"),
        ("[" * 100_000, "not valid JSON"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_bad_arguments_become_a_result_that_tells_the_model(arguments, told, is_async):
    result = run(weather, arguments, is_async=is_async)
    assert result.is_error
    assert told in result.content


# --- results ---


@both
@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", "text"),
        ("", ""),
        (None, "null"),
        (True, "true"),
        (3, "3"),
        ([1, "a"], '[1,"a"]'),
        ({"a": 1.5}, '{"a":1.5}'),
        ([], "[]"),
        (Unit.CELSIUS, '"celsius"'),
        (Place(city="Ulm"), '{"city":"Ulm","country":"DE"}'),
        (Point(1, 2), '{"x":1,"y":2}'),
        (Pair(1, 2), '{"left":1,"right":2}'),
        (datetime.date(2024, 2, 29), '"2024-02-29"'),
        (decimal.Decimal("1.50"), '"1.50"'),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (float("nan"), "null"),
        ("ü", "ü"),
        ({"ü": 1}, '{"ü":1}'),
        (TextPart(text="a"), (TextPart(text="a"),)),
        (
            [TextPart(text="a"), ImagePart(url="https://example.org/a.png")],
            (TextPart(text="a"), ImagePart(url="https://example.org/a.png")),
        ),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_a_tool_returns_goes_to_the_model(value, content, is_async):
    result = run(lambda: value, is_async=is_async)
    assert result.content == content
    assert not result.is_error


def test_a_message_is_bound_to_the_call():
    def f():
        return Message.tool("other", "sorry", is_error=True, metadata={"a": 1})

    result = run(f)
    assert (result.role, result.tool_call_id, result.content) == ("tool", "c1", "sorry")
    assert result.is_error
    assert result.metadata == {"a": 1}


def test_an_answer_without_content_is_an_empty_result():
    assert run(lambda: Message.assistant()).content == ""


@both
def test_a_value_without_json_is_an_error_result(is_async):
    result = run(lambda: object(), is_async=is_async)
    assert result.is_error
    assert "returned a object, which has no JSON" in result.content


# --- failures ---


@both
def test_a_raising_tool_becomes_a_result_without_traceback_or_secrets(is_async, caplog):
    def f():
        raise ConnectionError("postgres://admin:hunter2@db/prod refused")

    with caplog.at_level(logging.WARNING, logger="convmem.kernel"):
        result = run(f, is_async=is_async)
    assert result.is_error
    assert result.tool_call_id == "c1"
    assert "'f' failed with ConnectionError" in result.content
    assert "hunter2" not in result.content
    assert "Traceback" not in result.content
    assert "ConnectionError" in caplog.text  # the developer sees it


@both
@pytest.mark.parametrize(
    "error", [ToolError("No city X."), InvalidWindow("No city X.")]
)
def test_an_error_meant_for_the_model_is_shown_to_it(error, is_async):
    def f():
        raise error

    result = run(f, is_async=is_async)
    assert (result.is_error, result.content) == (True, "No city X.")


@both
def test_what_is_no_exception_is_not_caught(is_async):
    def f():
        raise KeyboardInterrupt

    async def af():
        raise asyncio.CancelledError

    if is_async:
        with pytest.raises(asyncio.CancelledError):
            run(af, is_async=True)
    else:
        with pytest.raises(KeyboardInterrupt):
            run(f)


# --- two worlds ---


@both
def test_async_functions_run_in_both_worlds(is_async):
    async def f(a: int):
        await asyncio.sleep(0)
        return a + 1

    assert run(f, {"a": 1}, is_async=is_async).content == "2"


@both
def test_async_callable_objects_run_in_both_worlds(is_async):
    class Adder:
        async def __call__(self, a: int):
            return a + 1

    made = Tool(Adder(), name="adder")
    assert run(made, {"a": 1}, is_async=is_async).content == "2"


@both
def test_a_function_that_returns_an_awaitable_is_awaited(is_async):
    async def later():
        return "late"

    assert run(lambda: later(), is_async=is_async).content == "late"


def test_a_sync_tool_leaves_the_event_loop_free():
    seen = {}

    def f():
        seen["thread"] = threading.get_ident()
        return "ok"

    assert run(f, is_async=True).content == "ok"
    assert seen["thread"] != threading.get_ident()


def test_context_variables_reach_a_tool_in_its_thread():
    request = contextvars.ContextVar("request")

    async def main():
        request.set("r7")
        return await Tool(lambda: request.get(), name="f").arun(call(), Context())

    assert asyncio.run(main()).content == "r7"


async def test_an_async_tool_called_synchronously_inside_a_loop_is_an_error_result():
    async def f():
        return 1

    result = Tool(f).run(call(), Context())
    assert result.is_error
