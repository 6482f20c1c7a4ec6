"""The start page: what is here, and where to go."""

from __future__ import annotations

import json
from collections.abc import Iterator

from django.conf import settings
from django.db.models import Count, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from convmem.models import Conversation
from project.services import label

SAID = ("My name is Ada.", "What is my name?")


def start(request: HttpRequest) -> HttpResponse:
    """Say what the demo holds, with links to the admin and the API."""
    runs = request.build_absolute_uri(reverse("convmem:run-list"))
    context = {
        "stored": Conversation._default_manager.aggregate(
            conversations=Count("pk"), messages=Sum("message_count", default=0)
        ),
        "model": label(settings.CONVMEM["SERVICES"]["default"]),
        "has_demo_login": settings.DEBUG,
        "commands": list(_commands(runs)),
    }
    return render(request, "project/start.html", context)


def _commands(url: str) -> Iterator[str]:
    """Yield shell commands that tell a name, then ask for it."""
    login = "admin:admin" if settings.DEBUG else "YOUR_LOGIN"
    for said in SAID:
        body = {"agent_name": "assistant", "session_id": "shell", "content": said}
        yield (
            f"curl -u {login} {url} \\\n"
            f"  -H 'Content-Type: application/json' \\\n"
            f"  -d '{json.dumps(body)}'"
        )
