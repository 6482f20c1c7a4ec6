"""`manage.py demo` shows what it promises, twice over, and fails when it does not."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from convmem.handlers import stores
from project import offline_wire
from project.demo import AGENT, KERNEL, TOOLS
from project.offline_rules import Reply
from project.seeds import owner_of_login

ROOT = Path(__file__).resolve().parents[2]


def manage(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DJANGO_SETTINGS_MODULE", "OPENAI_API_KEY", "OLLAMA_HOST")
    }
    environment.update(CONVMEM_DEMO_DIR=str(folder), COLUMNS="100", **more)
    return subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


@pytest.mark.process
def test_demo_from_nothing_and_again(tmp_path):
    folder = tmp_path / "new" / "folder"
    first = manage(folder, "demo")
    assert (first.returncode, first.stderr) == (0, "")
    assert (folder / "demo.sqlite3").exists()
    for shown in (
        "Your name is Ada.",
        "Your favourite colour is dark green.",
        "no: window",
        "A new process",
        "Your name is Noor.",
        "make serve",
        "Every step held",
    ):
        assert shown in first.stdout
    assert "✗" not in first.stdout

    again = manage(folder, "demo")
    assert again.returncode == 0, again.stdout + again.stderr
    kept = [line for line in first.stdout.splitlines() if "✓" in line]
    assert len(kept) >= 12
    assert [line for line in again.stdout.splitlines() if "✓" in line] == kept


@pytest.mark.process
def test_a_file_that_is_no_transcript_fails_by_name(tmp_path):
    done = manage(tmp_path, "demo", "--transcript", str(ROOT / "README.md"))
    assert done.returncode == 1
    assert "README.md is neither JSON nor JSON Lines" in done.stderr


@pytest.mark.process
@pytest.mark.parametrize("index", ["0", "5"])
def test_real_transcript(tmp_path, shared, index):
    path = shared / "conversations" / "taubench_airline_gpt4o.jsonl"
    done = manage(tmp_path, "demo", "--transcript", str(path), "--index", index)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "It goes on from what the file tells." in done.stdout


class TestPromises:
    """Each model that does not keep a promise makes the command fail."""

    @pytest.fixture(autouse=True)
    def _offline(self, transactional_db, monkeypatch):
        monkeypatch.setenv("CONVMEM_OFFLINE", "1")
        monkeypatch.delenv("CONVMEM_OFFLINE_URL", raising=False)

    def demo(self) -> str:
        printed = io.StringIO()
        with pytest.raises(CommandError) as failed:
            call_command("demo", stdout=printed)
        assert failed.value.returncode == 1
        return str(failed.value)

    def test_a_model_that_forgets(self, monkeypatch):
        monkeypatch.setattr(
            offline_wire, "reply_to", lambda *_: Reply(text="Who knows?")
        )
        assert self.demo() == "The demo failed: The second call knows the first."

    def test_a_model_that_never_calls_a_tool(self, monkeypatch):
        real = offline_wire.reply_to
        monkeypatch.setattr(
            offline_wire, "reply_to", lambda messages, *_: real(messages)
        )
        assert "The tools ran" in self.demo()

    def test_conversations_of_the_demo_belong_to_its_login(self, monkeypatch):
        monkeypatch.setattr("project.demo.Demo.new_process", lambda self: None)
        call_command("demo", stdout=io.StringIO())
        store = stores["default"].for_owner(owner_of_login("admin"))
        assert all(store.get(name) for name in (KERNEL, AGENT, TOOLS))
        assert stores["default"].get(KERNEL) == []


@pytest.mark.django_db(transaction=True)
def test_a_missing_local_model_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setattr("project.local_model.find_spec", lambda name: None)
    with pytest.raises(CommandError, match="run 'make demo-local'"):
        call_command("demo", "--local", stdout=io.StringIO())
