"""The start page, and the demo site as `manage.py serve_demo` runs it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command

from project.management.commands.serve_demo import make_login
from project.seeds import owner_of_login, seed

ROOT = Path(__file__).resolve().parents[2]
RUN = {"agent_name": "assistant", "session_id": "tested"}


@pytest.mark.django_db
class TestStartPage:
    def test_says_what_is_here(self, client, settings):
        settings.DEBUG = True
        seed()
        page = client.get("/").content.decode()
        assert "<dd>13</dd>" in page
        assert 'href="/admin/convmem/conversation/"' in page
        assert 'href="/api/v1/conversations/"' in page
        assert "curl -u admin:admin http://testserver/api/v1/runs/" in page
        assert "offline at http://127.0.0.1" in page

    def test_tells_no_login_without_debug(self, client, settings):
        settings.DEBUG = False
        settings.ALLOWED_HOSTS = ["testserver"]
        page = client.get("/").content.decode()
        assert "admin:admin" not in page
        assert "password" not in page

    def test_links_lead_somewhere(self, admin_client):
        page = admin_client.get("/").content.decode()
        for address in (
            "/admin/convmem/conversation/",
            "/admin/convmem/run/",
            "/api/v1/conversations/",
        ):
            assert f'href="{address}"' in page
            assert admin_client.get(address).status_code == 200


@pytest.mark.django_db
class TestLogin:
    def test_is_made_once(self):
        owner = owner_of_login("admin")
        assert make_login() == "log in as admin / admin"
        user = get_user_model().objects.get(username="admin")
        assert user.is_superuser
        assert user.is_staff
        assert user.check_password("admin")
        assert make_login() == "log in as admin / admin"
        assert owner_of_login("admin") == owner

    def test_a_password_of_your_own_is_kept(self):
        user = get_user_model().objects.create_user("admin", password="mine")
        assert make_login() == "admin, with the password that you have set"
        user.refresh_from_db()
        assert user.check_password("mine")
        assert not user.is_superuser

    def test_refused_without_debug(self, settings):
        settings.DEBUG = False
        with pytest.raises(CommandError, match="DEBUG only"):
            call_command("serve_demo")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DJANGO_SETTINGS_MODULE", "CONVMEM_OFFLINE_URL")
    }
    folder = tmp_path_factory.mktemp("site")
    environment.update(CONVMEM_DEMO_DIR=str(folder), CONVMEM_OFFLINE="1")
    command = [sys.executable, str(ROOT / "manage.py"), "serve_demo"]
    server = subprocess.Popen(
        [*command, "--port", str(port), "--delay", "0"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
        try:
            wait_for(client, server)
            yield server, client
        finally:
            server.kill()
            server.communicate()


def wait_for(client: httpx.Client, server: subprocess.Popen[str]) -> None:
    for _ in range(600):
        assert server.poll() is None, server.communicate()[0]
        try:
            client.get("/")
        except httpx.ConnectError:
            time.sleep(0.1)
        else:
            return
    pytest.fail("The demo site did not come up in a minute.")


@pytest.mark.process
class TestServe:
    def test_pages_and_static_files(self, site):
        _, client = site
        assert client.get("/").status_code == 200
        styles = client.get("/static/project/start.css")
        assert styles.headers["content-type"].startswith("text/css")
        assert client.get("/static/admin/css/base.css").status_code == 200
        assert client.get("/admin/login/").status_code == 200

    def test_runs_remember(self, site):
        _, client = site
        login = ("admin", "admin")

        def ask(content: str) -> dict:
            body = {**RUN, "content": content}
            answer = client.post("/api/v1/runs/", json=body, auth=login)
            assert answer.status_code == 201, answer.text
            return answer.json()

        ask("My name is Ada.")
        assert "Your name is Ada." in str(ask("What is my name?"))
        assert "24 * 2 = 48" in str(ask("What is 24 * 2?"))
        listed = client.get("/api/v1/conversations/", auth=login).json()
        assert "tested" in str(listed)

    def test_a_stranger_is_refused(self, site):
        _, client = site
        assert client.get("/api/v1/conversations/").status_code == 401
        wrong = client.get("/api/v1/conversations/", auth=("admin", "guess"))
        assert wrong.status_code == 401

    def test_interrupt_stops_all_of_it(self, site):
        server, client = site
        server.send_signal(signal.SIGINT)
        output, _ = server.communicate(timeout=20)
        assert "log in as admin / admin" in output
        assert "13 conversations added" in output
        assert "Traceback" not in output
        with pytest.raises(httpx.ConnectError):
            client.get("/")
