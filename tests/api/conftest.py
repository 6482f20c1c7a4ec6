from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth import get_user_model
from django.db import connections
from rest_framework.test import APIClient

from convmem.handlers import stores
from convmem.owners import Owner

API = "/api/v1/"
PROBLEM = {"type", "title", "status", "detail", "code"}


@pytest.fixture(autouse=True)
def _api_urls(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.api.urls"


@pytest.fixture
def alice(db: None) -> Any:
    return get_user_model().objects.create_user("alice")


@pytest.fixture
def bob(db: None) -> Any:
    return get_user_model().objects.create_user("bob")


@pytest.fixture
def api(alice: Any) -> APIClient:
    """A client of alice; authentication costs no query."""
    return client_of(alice)


@pytest.fixture
def bobs_api(bob: Any) -> APIClient:
    return client_of(bob)


@pytest.fixture
def atomic_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each view runs in a transaction, unless it says otherwise."""
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)


def client_of(user: Any) -> APIClient:
    client = APIClient(raise_request_exception=True)
    client.force_authenticate(user)
    return client


def store_of(user: Any) -> Any:
    return stores["default"].for_owner(Owner(name="user", id=str(user.pk)))


def conversation(conversation_id: str) -> str:
    return f"{API}conversations/{quote(conversation_id, safe='')}/"


def messages(conversation_id: str) -> str:
    return f"{conversation(conversation_id)}messages/"


def user_says(*texts: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text} for text in texts]}


def post(client: APIClient, path: str, body: Any, **headers: str) -> Any:
    """Post JSON; NaN and lone surrogates go out as Python writes them."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.generic(
        "POST", path, data, content_type="application/json", headers=headers
    )


def problem_of(response: Any, status: int, code: str) -> dict[str, Any]:
    """Assert that the response is a well-formed problem document; return it."""
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = json.loads(response.content)
    assert set(body) >= PROBLEM
    assert body["status"] == status
    assert body["code"] == code
    assert body["type"] == f"urn:convmem:problem:{code}"
    assert body["title"]
    assert body["detail"]
    return body
