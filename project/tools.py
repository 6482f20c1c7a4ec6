"""Tools of the demo's assistant: plain functions, described by their docstrings."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from datetime import datetime
from zoneinfo import ZoneInfo, available_timezones

_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def current_time(city: str) -> str:
    """Tell the local time of a city.

    Args:
        city: The city's English name, for example New York.
    """
    zone = _zone(city)
    return f"{datetime.now(zone):%H:%M} in {city} ({zone.key})"


def calculate(expression: str) -> str:
    """Work out a sum of plain numbers.

    Args:
        expression: Numbers, + - * / and brackets, for example 12 * (3 + 4).
    """
    if len(expression) > 200:
        raise ValueError("The expression has more than 200 characters.")
    value = _value(ast.parse(expression.strip(), mode="eval").body)
    return f"{expression.strip()} = {value:.12g}"


def _zone(city: str) -> ZoneInfo:
    wanted = city.strip().replace(" ", "_").lower()
    for name in sorted(available_timezones()):
        if name.rpartition("/")[2].lower() == wanted:
            return ZoneInfo(name)
    raise ValueError(f"No time zone is named after {city!r}.")


def _value(node: ast.expr) -> float:
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError("Only numbers, + - * / and brackets can be worked out.")
