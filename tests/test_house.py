"""Rules of the house that no linter knows: sizes, twins, places."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convmem.memory import MemoryProvider
from convmem.stores import ChatMemory

ROOT = Path(__file__).resolve().parent.parent
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources(*folders: str) -> list[Path]:
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if "migrations" not in path.parts
    )


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


each_source = pytest.mark.parametrize(
    "path", sources("convmem", "project"), ids=name_of
)


@each_source
def test_files_and_functions_stay_small(path):
    text = path.read_text()
    lines = text.count("\n")
    assert lines <= MAX_FILE_LINES
    long = [
        f"{node.name}: {size} lines"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, Function)
        if (size := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]
    assert long == []


@each_source
def test_nothing_is_imported_inside_a_function(path):
    """Cycles hide there; a ``noqa`` does not make it better."""
    hidden = [
        f"line {inner.lineno}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, Function)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    ]
    assert hidden == []


def undocumented(tree: ast.Module) -> Iterator[str]:
    kinds = (*Function.__args__, ast.ClassDef)
    for node in tree.body:
        if not isinstance(node, kinds) or node.name.startswith("_"):
            continue
        overload = "overload" in [ast.unparse(d) for d in node.decorator_list]
        if ast.get_docstring(node) is None and not overload:
            yield node.name


@pytest.mark.parametrize("path", sources("convmem"), ids=name_of)
def test_public_classes_and_functions_say_what_they_do(path):
    assert list(undocumented(ast.parse(path.read_text()))) == []


# --- sync and async ---

#: Verbs that do no I/O and that nobody has to await.
WITHOUT_TWIN = {"for_owner", "check", "default"}


def verbs(contract: type) -> dict[str, Any]:
    return {
        name: function
        for name, function in inspect.getmembers(contract, inspect.isfunction)
        if not name.startswith("_")
    }


def parameters(function: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


@pytest.mark.parametrize("contract", [ChatMemory, MemoryProvider])
def test_every_verb_of_a_contract_has_an_async_twin(contract):
    found = verbs(contract)
    twins = {name for name in found if name[0] == "a" and name[1:] in found}
    for name in set(found) - WITHOUT_TWIN - twins:
        twin = found.get(f"a{name}")
        assert twin is not None, f"{contract.__name__}.{name} has no twin"
        assert inspect.iscoroutinefunction(twin) or inspect.isasyncgenfunction(twin)
        assert parameters(twin) == parameters(found[name]), name


def hand_written_twins(tree: ast.Module) -> Iterator[tuple[str, Function, Function]]:
    """Yield (place, sync, async) of each class that defines both ``x`` and ``ax``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            own = {f.name: f for f in node.body if isinstance(f, Function)}
            for name, function in own.items():
                if twin := own.get(f"a{name}"):
                    yield f"{node.name}.{name}", function, twin


@pytest.mark.parametrize("path", sources("convmem"), ids=name_of)
def test_twins_take_the_same_arguments(path):
    for place, function, twin in hand_written_twins(ast.parse(path.read_text())):
        assert ast.unparse(function.args) == ast.unparse(twin.args), place


# --- what is written down ---


def documents() -> list[Path]:
    """Return every text of the project, wherever it came from (a clone, an archive)."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("*.toml"), ROOT / "Makefile"]
    for folder in ("convmem", "project", "tests", "docs", "benchmarks", ".ci"):
        found += [
            path
            for path in (ROOT / folder).rglob("*")
            if path.suffix in {".py", ".md", ".html", ".css", ".js", ".yaml", ".json"}
        ]
    return sorted(path for path in found if path.is_file())


def test_no_text_names_a_place_of_one_machine():
    place = re.compile(r"(?<![\w.:/$}])/(?:root|work|home/\w+|Users/\w+)/\w")
    found = [
        f"{name_of(path)}:{number}: {line.strip()[:80]}"
        for path in documents()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if place.search(line)
    ]
    assert found == []


def test_the_changelog_begins_with_what_is_not_released():
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == "Unreleased"
    assert len(headings) == len(set(headings))


def test_every_target_of_the_makefile_is_described():
    text = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z][a-z-]*):", text, re.M)
    described = re.findall(r"^([a-z][a-z-]*):.*  ## \S", text, re.M)
    assert targets == described
    assert {"demo", "test", "serve", "help", "bench"} <= set(targets)
