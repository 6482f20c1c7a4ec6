"""Whose conversations a request may touch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.test import RequestFactory

from convmem.access import owner_of, user_owner
from convmem.exceptions import ConfigurationError, InvalidOwner
from convmem.owners import NOBODY, Owner


def request_of(user: Any) -> Any:
    request = RequestFactory().get("/")
    request.user = user
    return request


def by_header(request: Any) -> Owner:
    return Owner(name="org", id=request.headers["X-Org"])


def test_a_user_owns_by_primary_key() -> None:
    assert user_owner(request_of(User(pk=42))) == Owner(name="user", id="42")


def test_a_primary_key_of_another_kind_is_written_as_text() -> None:
    user = SimpleNamespace(is_authenticated=True, pk=UUID(int=7))
    assert user_owner(request_of(user)).id == "00000000-0000-0000-0000-000000000007"


def test_visitors_and_bare_requests_own_nothing() -> None:
    assert user_owner(request_of(AnonymousUser())) is None
    assert user_owner(RequestFactory().get("/")) is None
    assert owner_of(request_of(AnonymousUser())) is None


def test_the_setting_is_read_live(settings: Any) -> None:
    request = RequestFactory().get("/", headers={"X-Org": "acme"})
    request.user = User(pk=1)
    settings.CONVMEM = {}
    assert owner_of(request) == Owner(name="user", id="1")
    settings.CONVMEM = {"OWNER": f"{__name__}.by_header"}
    assert owner_of(request) == Owner(name="org", id="acme")
    settings.CONVMEM = {"OWNER": lambda request: None}
    assert owner_of(request) is None


def test_nobody_is_no_owner_of_a_request(settings: Any) -> None:
    settings.CONVMEM = {"OWNER": lambda request: NOBODY}
    assert owner_of(request_of(User(pk=1))) is None


@pytest.mark.parametrize("value", ["user:1", ("user", "1"), 1, User(pk=1)])
def test_an_owner_function_must_return_an_owner(settings: Any, value: Any) -> None:
    settings.CONVMEM = {"OWNER": lambda request: value}
    with pytest.raises(ConfigurationError, match="must return a convmem Owner"):
        owner_of(request_of(User(pk=1)))


@pytest.mark.parametrize(
    "owner", [Owner(name="org"), Owner(id="1"), Owner(name="org", id="x" * 256)]
)
def test_half_an_owner_or_a_long_one_is_refused(settings: Any, owner: Owner) -> None:
    settings.CONVMEM = {"OWNER": lambda request: owner}
    with pytest.raises(InvalidOwner):
        owner_of(request_of(User(pk=1)))
