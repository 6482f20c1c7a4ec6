"""From a callable's signature and docstring to a model of its arguments."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any

import docstring_parser
from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from convmem.exceptions import InvalidTool
from convmem.kernel.context import Context


class _Schema(GenerateJsonSchema):
    """A default that has no JSON is simply not shown."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # a title only repeats the name


class Signature:
    """The parameters of ``function`` as a model sees them.

    ``arguments`` is a pydantic model with a field per parameter, ``injected`` are the
    names of the parameters that want a `Context`. Raises `InvalidTool` for a signature
    that has no JSON schema.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._name = name
        doc = _documentation(function)
        self.description = (doc.description or "").strip()
        self._help = {param.arg_name: param.description for param in doc.params}
        self.injected: list[str] = []
        self._parameters: dict[str, inspect.Parameter] = {}
        fields = self._fields(function)
        try:
            self.arguments: type[BaseModel] = create_model(
                name,
                __config__=ConfigDict(
                    extra="allow" if self._open else "forbid", protected_namespaces=()
                ),
                **fields,
            )
            self.schema = self._json_schema()
        except (PydanticUserError, TypeError) as error:
            raise InvalidTool(
                f"Tool {name!r}: no JSON schema for its parameters "
                f"({str(error).splitlines()[0]})."
            ) from error

    def bind(self, arguments: BaseModel, context: Context) -> inspect.BoundArguments:
        """Return checked arguments as they are passed to the function."""
        positional: list[Any] = []
        named: dict[str, Any] = dict(arguments.model_extra or {})
        values = dict(zip(self._parameters, self._values(arguments), strict=True))
        for name, parameter in self._signature.parameters.items():
            if name in self.injected:
                value: Any = context
            elif name in values:
                value = values[name]
            else:
                continue
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                named[name] = value
        return self._signature.bind(*positional, **named)

    def _values(self, arguments: BaseModel) -> list[Any]:
        return [getattr(arguments, f"p{n}") for n in range(len(self._parameters))]

    def _fields(self, function: Callable[..., Any]) -> dict[str, Any]:
        # Fields are numbered and known by their alias: a parameter may be called
        # "json", "copy" or "_x", which pydantic keeps for itself.
        self._open = False
        self._signature = inspect.signature(function)
        hints = self._hints(function)
        fields: dict[str, Any] = {}
        for name, parameter in self._signature.parameters.items():
            hint = hints.get(name, Any)
            if parameter.kind is parameter.VAR_POSITIONAL:
                raise InvalidTool(
                    f"Tool {self._name!r}: '*{name}' has no name that a model could "
                    "use; take a list instead."
                )
            if parameter.kind is parameter.VAR_KEYWORD:
                self._open = True
            elif _wants_context(hint):
                self.injected.append(name)
            else:
                fields[f"p{len(fields)}"] = self._field(parameter, hint)
                self._parameters[name] = parameter
        return fields

    def _field(self, parameter: inspect.Parameter, hint: Any) -> tuple[Any, Any]:
        given = parameter.default
        if isinstance(given, FieldInfo):  # def f(x: int = Field(gt=0))
            hint, given = Annotated[hint, given], given.default
        default = ... if given is parameter.empty else given
        info: dict[str, Any] = {"alias": parameter.name}
        if not _described(hint) and (text := self._help.get(parameter.name)):
            info["description"] = text
        return hint, Field(default, **info)

    def _hints(self, function: Callable[..., Any]) -> dict[str, Any]:
        target: Any = function
        while isinstance(target, functools.partial):
            target = target.func
        if not inspect.isroutine(target):
            target = type(target).__call__
        try:
            return typing.get_type_hints(target, include_extras=True)
        except (NameError, TypeError) as error:
            raise InvalidTool(
                f"Tool {self._name!r}: an annotation cannot be resolved ({error}); "
                "define its type at module level."
            ) from error

    def _json_schema(self) -> dict[str, Any]:
        schema = self.arguments.model_json_schema(schema_generator=_Schema)
        for key in ("title", "description"):
            schema.pop(key, None)
        schema.setdefault("properties", {})
        return schema


def _documentation(function: Callable[..., Any]) -> docstring_parser.Docstring:
    text = inspect.getdoc(function) if inspect.isroutine(function) else None
    if text is None and isinstance(function, functools.partial):
        text = inspect.getdoc(function.func)
    try:
        return docstring_parser.parse(text or "")
    except docstring_parser.ParseError:
        plain = docstring_parser.Docstring()
        plain.short_description = text
        return plain


def _wants_context(hint: Any) -> bool:
    if typing.get_origin(hint) in {typing.Union, types.UnionType, Annotated}:
        return any(_wants_context(item) for item in typing.get_args(hint))
    return isinstance(hint, type) and issubclass(hint, Context)


def _described(hint: Any) -> bool:
    return any(
        isinstance(item, FieldInfo) and item.description
        for item in getattr(hint, "__metadata__", ())
    )
