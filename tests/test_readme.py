"""The README's snippets run, print what they say, and name targets that exist."""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import override_settings
from django.urls import include, path, resolve
from django.utils.module_loading import import_string

from convmem.agent import unregister_agent
from convmem.checks import check_settings
from project.services import running_model

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.M | re.S)


def blocks(language: str) -> list[str]:
    return [m["code"] for m in BLOCK.finditer(README) if m["language"] == language]


def snippets(*, of_python_api: bool) -> list[str]:
    """Python blocks; those of settings and urls begin with the file's name."""
    is_file = ("# settings.py", "# urls.py")
    return [c for c in blocks("python") if c.startswith(is_file) != of_python_api]


@pytest.fixture
def offline(monkeypatch) -> Iterator[None]:
    monkeypatch.setenv("CONVMEM_OFFLINE", "1")
    with running_model():
        yield
    unregister_agent("support")


def expected(code: str) -> list[str]:
    """Comment lines that stand alone in the first column tell what is printed."""
    return [line[2:] for line in code.splitlines() if line.startswith("# ")]


def compiled(code: str) -> CodeType:
    return compile(code, "README.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


async def execute(code: str, names: dict[str, Any]) -> str:
    """Run one snippet as a reader would, and return what it prints."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        for statement in ast.parse(code).body:
            piece = ast.unparse(statement)
            if "await " in piece:
                await eval(compiled(piece), names)
            else:
                await in_thread(piece, names)
            if "end=" in piece:
                print()
    return printed.getvalue()


async def in_thread(code: str, names: dict[str, Any]) -> None:
    await sync_to_async(exec)(compile(code, "README.md", "exec"), names)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("offline")
async def test_python_snippets_print_what_they_say():
    names: dict[str, Any] = {}
    codes = snippets(of_python_api=True)
    assert len(codes) >= 8
    for code in codes:
        printed = await execute(code, names)
        assert printed.splitlines() == expected(code), code


def test_installation_snippets_make_a_project_without_faults():
    settings_code, urls_code = snippets(of_python_api=False)
    names: dict[str, Any] = {"INSTALLED_APPS": []}
    exec(settings_code, names)
    assert names["INSTALLED_APPS"] == ["rest_framework", "convmem"]
    with override_settings(CONVMEM=names["CONVMEM"]):
        assert check_settings() == []

    urls: dict[str, Any] = {"urlpatterns": [], "path": path, "include": include}
    exec(urls_code, urls)
    match = resolve("/api/v1/runs/", urlconf=tuple(urls["urlpatterns"]))
    assert match.view_name == "convmem:run-list"


def test_shell_snippets_name_existing_make_targets():
    targets = set(
        re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M),
    )
    named = set(re.findall(r"make ([a-z][a-z-]*)", "\n".join(blocks("sh"))))
    named |= set(re.findall(r"`make ([a-z-]+)", README))
    assert {"demo", "serve", "test", "bench"} <= named
    assert named <= targets


def test_links_and_dotted_paths_lead_somewhere():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
    for dotted in set(re.findall(r"convmem\.(?:stores|clients)\.[A-Z]\w+", README)):
        assert isinstance(import_string(dotted), type), dotted
