"""What the reference pages say is what the code does."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from django.utils.module_loading import import_string

from convmem import exceptions
from convmem.conf import DEFAULTS
from convmem.exceptions import ConvmemError

ROOT = Path(__file__).resolve().parent.parent
ERRORS = (ROOT / "docs" / "errors.md").read_text()
SETTINGS = (ROOT / "docs" / "settings.md").read_text()

CLASSES = [
    value
    for value in vars(exceptions).values()
    if isinstance(value, type) and issubclass(value, ConvmemError)
]
BACKENDS = [
    "convmem.stores.DatabaseStore",
    "convmem.stores.CacheStore",
    "convmem.stores.LocalStore",
    "convmem.memory.DefaultMemoryProvider",
    "convmem.clients.HttpChatService",
]


def rows(text: str, columns: int) -> list[tuple[str, ...]]:
    """Return the cells of each table row that has so many columns, without headings."""
    found = []
    for line in text.splitlines():
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        if len(cells) == columns and cells[0].strip(" -") not in {"", "code", "id"}:
            found.append(tuple(cell.strip() for cell in cells))
    return found


# --- errors ---


def test_the_table_of_errors_is_the_tree_of_errors():
    assert sorted(row[:3] for row in rows(ERRORS, 5)) == sorted(
        (f"`{kind.code}`", str(kind.status), f"`{kind.__name__}`") for kind in CLASSES
    )


def test_every_code_is_its_own():
    codes = [kind.code for kind in CLASSES]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code) for code in codes)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.code)
def test_every_error_has_a_status_and_says_what_it_is(kind):
    assert 400 <= kind.status < 600
    assert kind.__doc__


def test_an_error_has_a_sentence_and_the_facts_for_programs():
    error = ConvmemError("It broke; mend it.", alias="x")
    assert (str(error), error.message) == ("It broke; mend it.", "It broke; mend it.")
    assert error.details == {"alias": "x"}
    error = exceptions.ProviderTimeout("Too slow.", phase="idle", retryable=True)
    assert (error.details, error.retryable) == ({"phase": "idle"}, True)


# --- settings ---


def test_the_table_of_keys_has_every_key_and_its_default():
    found = {
        key.strip("`"): eval(default.strip("`"))
        for key, default, _ in rows(SETTINGS, 3)
        if key.strip("`").isupper()
    }
    assert found == DEFAULTS


@pytest.mark.parametrize("path", BACKENDS)
def test_the_table_of_options_has_every_option(path):
    listed: dict[str, set[str]] = {}
    backend = ""
    section = SETTINGS.split("### Options of the backends")[1].split("\n## ")[0]
    for line in section.splitlines():
        if match := re.match(r"\| (?:`([\w.]+)`)? ?\| `([A-Z_]+)` \|", line):
            backend = match[1] or backend
            listed.setdefault(backend, set()).add(match[2])
    options = inspect.signature(import_string(path)).parameters
    assert listed[path] == {name.upper() for name in options}


def test_the_table_of_checks_has_every_id():
    used: set[str] = set()
    for path in (ROOT / "convmem").rglob("*.py"):
        text = path.read_text()
        used |= set(re.findall(r"convmem\.([EW]\d{3})", text))
        used |= set(re.findall(r'"([EW]\d{3})"', text))
    listed = [cells[0] for cells in rows(SETTINGS.split("## System checks")[1], 2)]
    assert listed == sorted(listed)
    assert set(listed) == {f"`convmem.{number}`" for number in used}


# --- examples ---


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=str)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
        name, _, anchor = target.partition("#")
        other = page.parent / name if name else page
        assert other.exists(), target
        headings = re.findall(r"^#+ (.+)$", other.read_text(), re.M)
        anchors = {
            re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings
        }
        assert not anchor or anchor in anchors, target


def test_the_example_setting_is_valid_python_with_known_keys():
    example = SETTINGS.split("```python\n")[1].split("```")[0]
    names: dict[str, dict[str, object]] = {}
    exec(example, names)
    assert set(names["CONVMEM"]) <= set(DEFAULTS)
