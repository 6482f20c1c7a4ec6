"""`import convmem` is cheap, and every name that it promises is there."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import convmem

SOURCE = Path(convmem.__file__).read_text()


def for_type_checkers() -> dict[str, str]:
    """Return name -> module of the imports under ``if TYPE_CHECKING``."""
    found: dict[str, str] = {}
    for node in ast.parse(SOURCE).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for item in node.body:
                assert isinstance(item, ast.ImportFrom)
                for alias in item.names:
                    assert alias.asname == alias.name, "re-export as X as X"
                    found[alias.name] = str(item.module)
    return found


@pytest.mark.parametrize("name", convmem.__all__)
def test_every_name_resolves(name):
    assert getattr(convmem, name) is not None


def test_the_three_lists_agree():
    assert for_type_checkers() == convmem._MODULE_OF
    assert sorted(convmem.__all__) == sorted(convmem._MODULE_OF)
    assert len(set(convmem.__all__)) == len(convmem.__all__)


def test_a_class_says_that_it_lives_where_the_table_looks():
    """Names come straight from the room that owns them, or from its package."""
    for name, module in convmem._MODULE_OF.items():
        home = getattr(getattr(convmem, name), "__module__", module)
        assert home == module or home.startswith(f"{module}."), name


def test_dir_lists_the_public_names_before_they_are_loaded():
    assert set(convmem.__all__) <= set(dir(convmem))
    assert "__version__" in dir(convmem)


def test_no_public_name_is_hidden_by_a_module():
    """`from convmem import stores` gives the package, whatever a table says."""
    modules = {module.name for module in pkgutil.iter_modules(convmem.__path__)}
    assert modules.isdisjoint(convmem.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'convmem' has no attribute 'Nop'"):
        convmem.Nop  # noqa: B018
    assert not hasattr(convmem, "_nothing")


def test_star_import_brings_the_public_names():
    names: dict[str, object] = {}
    exec("from convmem import *", names)
    assert set(convmem.__all__) <= set(names)


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a new process has after running ``statement``."""
    code = f"{statement}\nimport sys; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy():
    loaded = loaded_by("import convmem")
    assert {name for name in loaded if name.startswith("convmem.")} == set()
    assert loaded.isdisjoint({"django", "httpx", "msgspec", "pydantic"})


def test_values_need_no_django():
    loaded = loaded_by("from convmem import Message, Owner; Message.user('hello')")
    assert loaded.isdisjoint({"django.db", "django.conf", "httpx"})
    assert "msgspec" in loaded
