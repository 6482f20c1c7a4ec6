"""The page about the API says what is there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from convmem.api.urls import urlpatterns
from tests.api.conftest import messages, post

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text()


def test_every_method_of_every_address_is_listed() -> None:
    listed = set(re.findall(r"^\| ([A-Z]+) \| `(.+?)` \|", PAGE, re.MULTILINE))
    served = set()
    for pattern in urlpatterns:
        address = re.sub(r"<\w+:\w+>", "{id}", str(pattern.pattern))
        view = pattern.callback.view_class
        for method in ("get", "post", "put", "patch", "delete"):
            if hasattr(view, method):
                served.add((method.upper(), address))
    assert listed == served


def test_the_example_of_an_error_is_what_is_answered(api: Any) -> None:
    (example,) = [
        found
        for found in map(json.loads, re.findall(r"```json\n(.+?)```", PAGE, re.DOTALL))
        if "detail" in found
    ]
    said = {"messages": ["hi", {"role": "robot", "content": "hi"}]}
    assert post(api, messages("c"), said).json() == example


def test_the_browsable_pages_speak_plainly(api: Any) -> None:
    """A docstring of a view is read by people: no marks of its author's."""
    for pattern in urlpatterns:
        said = pattern.callback.view_class().get_view_description()
        assert said
        assert "`" not in said
