"""Optional packages are asked for by the extra that installs them."""

from __future__ import annotations

import json

import pytest

from convmem.compat import require
from convmem.exceptions import MissingDependency


def test_an_installed_module_is_returned():
    assert require("json", "postgres") is json
    assert require("json.decoder", "postgres") is json.decoder


@pytest.mark.parametrize("name", ["convmem_no_such", "convmem_no_such.inner"])
def test_a_missing_package_is_named_with_the_command(name):
    with pytest.raises(MissingDependency) as caught:
        require(name, "redis")
    assert caught.value.message == (
        f'{name} is not installed; run: python -m pip install "django-convmem[redis]"'
    )
    assert caught.value.details == {"module": name, "extra": "redis"}
    assert caught.value.code == "missing_dependency"


def test_what_a_package_itself_misses_is_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "convmem_half.py").write_text("import convmem_other_half\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="convmem_other_half"):
        require("convmem_half", "redis")
