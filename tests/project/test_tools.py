from __future__ import annotations

import re

import pytest

from project.tools import calculate, current_time


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("12 * (3 + 4)", "12 * (3 + 4) = 84"),
        (" 7 / 2 ", "7 / 2 = 3.5"),
        ("-3 - -3", "-3 - -3 = 0"),
    ],
)
def test_calculate(expression, answer):
    assert calculate(expression) == answer


@pytest.mark.parametrize("expression", ["2 ** 9", "open('x')", "'a' * 3", "True + 1"])
def test_calculate_refuses_anything_else(expression):
    with pytest.raises(ValueError, match="Only numbers"):
        calculate(expression)


def test_calculate_refuses_long_input():
    with pytest.raises(ValueError, match="200 characters"):
        calculate("1+" * 200 + "1")


def test_current_time():
    told = current_time("new york")
    assert re.fullmatch(r"\d\d:\d\d in new york \(America/New_York\)", told)


def test_unknown_city():
    with pytest.raises(ValueError, match="'Atlantis'"):
        current_time("Atlantis")
