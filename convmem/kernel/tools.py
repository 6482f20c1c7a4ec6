"""Tools: plain callables, sync or async, that a model may call."""

from __future__ import annotations

import functools
import inspect
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, overload

import msgspec
import pydantic_core
from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from pydantic import BaseModel, ValidationError

from convmem.chat import ToolSpec
from convmem.exceptions import BadInput, InvalidTool, ToolError
from convmem.kernel.context import Context
from convmem.kernel.schema import Signature
from convmem.messages import PART_TYPES, Content, Message, ToolCall

NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}\Z")
logger = logging.getLogger("convmem.kernel")


class Tool:
    """A callable with the JSON schema that its signature and docstring give.

    ``spec`` is what the model sees. A parameter annotated `Context` is filled in and
    not shown. The tool itself may be called like the function. What it returns goes to
    the model: a string, a part or parts, a `Message`, or a value that has JSON.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
    ) -> None:
        if not callable(function):
            raise InvalidTool(
                f"A tool must be callable, not {type(function).__name__}."
            )
        self.function = function
        self.name = _checked_name(name, function)
        self._signature = Signature(function, self.name)
        self.spec = ToolSpec(
            name=self.name,
            description=description or self._signature.description,
            parameters=self._signature.schema,
        )
        functools.update_wrapper(self, function, updated=())

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def run(self, call: ToolCall, context: Context) -> Message:
        """Carry out ``call`` and return its result message.

        A failure is a result too, marked ``is_error``. An async function runs by
        `asgiref.sync.async_to_sync`.
        """
        return self._guarded(call, lambda: self._run(call, context))

    async def arun(self, call: ToolCall, context: Context) -> Message:
        """The same in an event loop; a sync function runs in a thread."""
        try:
            value = await self._arun(call, context)
        except Exception as error:  # noqa: BLE001 - becomes the tool's result
            return failure(call, error)
        return self._guarded(call, lambda: value)

    def _guarded(self, call: ToolCall, produce: Callable[[], Any]) -> Message:
        try:
            return result_message(call, produce())
        except Exception as error:  # noqa: BLE001 - becomes the tool's result
            return failure(call, error)

    def _run(self, call: ToolCall, context: Context) -> Any:
        bound = self._bind(call, context)
        function = self.function
        if _is_async(function):
            function = async_to_sync(function)
        value = function(*bound.args, **bound.kwargs)
        return async_to_sync(_wait)(value) if inspect.isawaitable(value) else value

    async def _arun(self, call: ToolCall, context: Context) -> Any:
        bound = self._bind(call, context)
        function = self.function
        if not _is_async(function):
            function = sync_to_async(function)
        value = await function(*bound.args, **bound.kwargs)
        return await value if inspect.isawaitable(value) else value

    def _bind(self, call: ToolCall, context: Context) -> inspect.BoundArguments:
        model = self._signature.arguments
        return self._signature.bind(_parsed(call, model), context)


class Toolbox:
    """Tools by name. Raises `InvalidTool` when two share one."""

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for item in tools:
            entry = item if isinstance(item, Tool) else Tool(item)
            if entry.name in self._tools:
                raise InvalidTool(f"Two tools are called {entry.name!r}; rename one.")
            self._tools[entry.name] = entry
        self.specs = tuple(entry.spec for entry in self._tools.values())

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def unknown(self, call: ToolCall) -> Message:
        """Return the error result for a tool that is not here."""
        names = ", ".join(self._tools) or "none"
        return error_message(
            call, f"There is no tool {call.name!r}. Available tools: {names}."
        )


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a `Tool` of a function: ``@tool`` or ``@tool(name=..., description=...)``.

    Only needed to give another name or description: kernel and agent take plain
    callables too.
    """
    if function is not None:
        return Tool(function, name=name, description=description)
    return functools.partial(Tool, name=name, description=description)


def error_message(call: ToolCall, text: str) -> Message:
    """Return an error result with a text for the model."""
    return Message.tool(call.id, text, name=call.name, is_error=True)


def failure(call: ToolCall, error: Exception) -> Message:
    """Return the error result for what a tool raised.

    The model reads the message of a `ToolError` or `BadInput`; of any other exception
    only its type, since messages may hold secrets. The log has it all.
    """
    if isinstance(error, ToolError | BadInput):
        return error_message(call, error.message)
    logger.warning("The tool %s failed.", call.name, exc_info=error)
    return error_message(
        call,
        f"The tool {call.name!r} failed with {type(error).__name__}. "
        "Try other arguments, or go on without it.",
    )


def result_message(call: ToolCall, value: Any) -> Message:
    """Return what a tool returned as the message that goes back to the model."""
    if isinstance(value, Message):
        return value.replace(
            role="tool",
            tool_call_id=call.id,
            tool_calls=(),
            name=value.name or call.name,
            content="" if value.content is None else value.content,
            position=None,
        )
    return Message.tool(call.id, _content(value), name=call.name)


def _content(value: Any) -> Content:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, PART_TYPES):
        return (value,)
    if (
        isinstance(value, list | tuple)
        and value
        and all(isinstance(item, PART_TYPES) for item in value)
    ):
        return tuple(value)
    try:
        return pydantic_core.to_json(
            value, inf_nan_mode="null", fallback=msgspec.to_builtins
        ).decode()
    except (pydantic_core.PydanticSerializationError, TypeError) as error:
        raise ToolError(
            f"The tool returned a {type(value).__name__}, which has no JSON."
        ) from error


def _parsed(call: ToolCall, model: type[BaseModel]) -> BaseModel:
    try:
        arguments = json.loads(call.arguments.strip() or "{}")
    except (ValueError, RecursionError) as error:
        raise ToolError(
            f"The arguments are not valid JSON ({error}). Send one JSON object."
        ) from error
    if not isinstance(arguments, dict):
        raise ToolError(
            f"The arguments must be one JSON object, not {type(arguments).__name__}."
        )
    try:
        return model.model_validate(arguments)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        listed = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}"
            for item in problems
        )
        raise ToolError(f"The arguments are not accepted: {listed}.") from error


def _checked_name(name: str | None, function: Callable[..., Any]) -> str:
    found = name or getattr(function, "__name__", "") or type(function).__name__
    if not NAME.match(found):
        raise InvalidTool(
            f"{found!r} is no name for a tool: use 1 to 64 letters, digits, '_' or "
            "'-', for example tool(name='lookup')."
        )
    return found


def _is_async(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    call = function if inspect.isroutine(function) else type(function).__call__
    return iscoroutinefunction(function) or iscoroutinefunction(call)


async def _wait(value: Awaitable[Any]) -> Any:
    return await value
