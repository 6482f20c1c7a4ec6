"""The start page: what is here, and where to go."""

from __future__ import annotations

import json

from django.conf import settings
from django.db.models import Count, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from convmem.models import Conversation
from project.services import label


def start(request: HttpRequest) -> HttpResponse:
    """Say what the demo holds, with links to the admin and the API."""
    stored = Conversation._default_manager.aggregate(
        conversations=Count("pk"), messages=Sum("message_count", default=0)
    )
    context = {
        "stored": stored,
        "model": label(settings.CONVMEM["SERVICES"]["default"]),
        "has_demo_login": settings.DEBUG,
        "commands": _commands(request.build_absolute_uri(reverse("convmem:run-list"))),
    }
    return render(request, "project/start.html", context)


def _commands(url: str) -> list[str]:
    """Return two shell commands: tell a name, then ask for it."""
    return [_command(url, "My name is Ada."), _command(url, "What is my name?")]


def _command(url: str, said: str) -> str:
    body = json.dumps(
        {"agent_name": "assistant", "session_id": "from-the-shell", "content": said}
    )
    return (
        f"curl -u admin:admin {url} \\\n"
        f"  -H 'Content-Type: application/json' \\\n  -d '{body}'"
    )
