"""The small commands: `ask` and `offline_model`."""

from __future__ import annotations

import io
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from django.core.management import CommandError, call_command

from convmem.handlers import stores
from project.seeds import owner_of_login
from project.services import running_model

ROOT = Path(__file__).resolve().parents[2]


def ask(*arguments: str) -> str:
    printed = io.StringIO()
    call_command("ask", *arguments, stdout=printed)
    return printed.getvalue().strip()


@pytest.mark.django_db(transaction=True)
class TestAsk:
    @pytest.fixture(autouse=True)
    def _offline(self, monkeypatch):
        monkeypatch.setenv("CONVMEM_OFFLINE", "1")
        with running_model():
            yield

    def test_it_goes_on_with_a_conversation_of_the_user(self):
        assert ask("chat", "My name is Ada.", "--user", "sam") == (
            "Nice to meet you, Ada."
        )
        assert ask("chat", "Who am I?", "--user", "sam") == "Your name is Ada."
        assert ask("chat", "Who am I?").startswith("I was not told your name")
        store = stores["default"].for_owner(owner_of_login("sam"))
        assert len(store.get("chat")) == 4

    def test_tools_of_the_assistant(self):
        assert ask("chat", "What is 6 * 7?") == "calculate answers: 6 * 7 = 42."

    def test_an_unknown_agent_is_named(self):
        with pytest.raises(CommandError, match=r"unknown_agent: .*'nobody'"):
            ask("chat", "Hello", "--agent", "nobody")

    def test_an_id_that_is_none_is_refused_by_its_code(self):
        with pytest.raises(CommandError, match="invalid_conversation_id"):
            ask("x" * 256, "Hello")


@pytest.mark.process
def test_offline_model_serves_until_interrupted():
    server = subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), "offline_model", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        said = server.stdout.readline()
        address = next(word for word in said.split() if word.startswith("http"))
        assert httpx.get(f"{address}/models").json()["data"][0]["id"] == "offline"
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=20) == 0
        assert server.stderr.read() == ""
    finally:
        server.kill()
        server.communicate()


def test_a_port_in_use_is_named_with_the_remedy():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=f"Port {port} .* --port"):
            call_command("offline_model", port=port)
