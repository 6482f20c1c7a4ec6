"""Fixtures of the whole suite, and what happens when a service is not there."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.db import connection

CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}
SHARED = Path(__file__).resolve().parents[1].parent / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real transcripts and recorded responses beside the checkout."""
    if not SHARED.is_dir():
        pytest.skip("../shared is not here")
    return SHARED


@pytest.fixture(scope="session")
def redis() -> str:
    """The address of a Redis server that answers."""
    place = urlsplit(settings.CACHES["redis"]["LOCATION"])
    require_service("Redis", place.hostname or "127.0.0.1", place.port or 6379)
    return str(settings.CACHES["redis"]["LOCATION"])


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Part with the connections of threads that have ended: PostgreSQL drops no
    database that somebody is connected to."""
    yield
    if connection.vendor == "postgresql":
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


def require_service(name: str, host: str, port: int) -> None:
    """Skip (with CI=true: fail) the test when nothing answers at ``host:port``."""
    if not answers(host, port):
        reason = f"{name} does not answer at {host}:{port}"
        (pytest.fail if CI else pytest.skip)(reason)


def answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=2).close()
    except OSError:
        return False
    return True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs the database server when it is not there (not with CI=true)."""
    database = settings.DATABASES["default"]
    if not database.get("PORT") or CI:
        return
    if answers(database["HOST"], int(database["PORT"])):
        return
    place = f"{database['HOST']}:{database['PORT']}"
    skip = pytest.mark.skip(reason=f"{database['ENGINE']} does not answer at {place}")
    for item in items:
        item.add_marker(skip)
