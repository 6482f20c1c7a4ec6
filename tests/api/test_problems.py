"""Who may come in, and that every refusal is a problem document."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.http import Http404, UnreadablePostError
from rest_framework import exceptions, permissions, throttling
from rest_framework.settings import api_settings
from rest_framework.test import APIClient, APIRequestFactory, force_authenticate

from convmem.api.base import ConvmemView
from convmem.api.conversations import ConversationList
from convmem.api.parsers import StrictJSONParser
from convmem.exceptions import ProviderUnreachable, StoreBusy
from convmem.models import StoredMessage
from convmem.owners import Owner
from tests.api.conftest import (
    API,
    client_of,
    messages,
    post,
    problem_of,
    store_of,
    user_says,
)

LIST = f"{API}conversations/"
PATHS = [
    LIST,
    f"{LIST}talk/",
    messages("talk"),
    f"{API}runs/6a4f0a5e-0000-4000-8000-000000000000/",
]


@pytest.mark.django_db
@pytest.mark.parametrize("path", PATHS)
def test_nobody_comes_in_without_a_name(path: str) -> None:
    response = APIClient().get(path)
    problem_of(response, 401, "not_authenticated")
    assert response["WWW-Authenticate"].startswith("Basic")


@pytest.mark.django_db
def test_nobody_writes_without_a_name() -> None:
    for path in (messages("talk"), f"{API}runs/"):
        problem_of(post(APIClient(), path, user_says("hi")), 401, "not_authenticated")
    assert not StoredMessage.objects.exists()


@pytest.mark.django_db
def test_permissive_defaults_do_not_open_the_api(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ConvmemView, "permission_classes", [permissions.AllowAny])
    problem_of(APIClient().get(LIST), 401, "not_authenticated")


@pytest.mark.django_db
def test_without_a_challenge_the_answer_is_403(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConvmemView, "authentication_classes", [])
    problem_of(APIClient().get(LIST), 403, "permission_denied")


@pytest.mark.django_db
def test_wrong_credentials_are_refused() -> None:
    response = APIClient().get(LIST, headers={"Authorization": "Basic YTpi"})
    problem_of(response, 401, "authentication_failed")


def test_a_session_needs_a_csrf_token(alice: Any) -> None:
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(alice)
    body = problem_of(
        post(client, messages("talk"), user_says("hi")), 403, "permission_denied"
    )
    assert "CSRF" in body["detail"]
    assert client.get(LIST).status_code == 200
    assert not StoredMessage.objects.exists()


def test_the_projects_permissions_count_too(
    api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConvmemView, "permission_classes", [permissions.IsAdminUser])
    problem_of(api.get(LIST), 403, "permission_denied")


def test_model_permissions_fit_every_view(
    api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ConvmemView, "permission_classes", [permissions.DjangoModelPermissions]
    )
    assert api.get(LIST).status_code == 200
    response = post(api, f"{API}runs/", {"agent_name": "bot", "content": "Hi"})
    problem_of(response, 403, "permission_denied")


def test_object_permissions_are_asked(
    api: Any, alice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoTalk(permissions.BasePermission):
        def has_object_permission(self, request: Any, view: Any, obj: Any) -> bool:
            return bool(obj.conversation_id != "talk")

    monkeypatch.setattr(ConvmemView, "permission_classes", [NoTalk])
    store_of(alice).add("talk", ["hi"])
    store_of(alice).add("other", ["hi"])
    assert api.get(messages("other")).status_code == 200
    for response in (
        api.get(messages("talk")),
        api.delete(messages("talk")),
        api.get(f"{LIST}talk/"),
    ):
        problem_of(response, 403, "permission_denied")


@pytest.mark.parametrize("path", [LIST, f"{LIST}talk/", messages("talk")])
def test_a_browser_can_look_around(api: Any, alice: Any, path: str) -> None:
    store_of(alice).add("talk", ["<b>hi</b>"])
    response = api.get(path, headers={"Accept": "text/html"})
    assert response.status_code == 200
    assert b"<b>hi" not in response.content


@pytest.mark.parametrize("path", [*PATHS, f"{API}runs/"])
def test_options_describe_the_view(api: Any, path: str) -> None:
    assert api.options(path).json()["parses"] == ["application/json"]


class OncePerDay(throttling.SimpleRateThrottle):
    rate = "1/day"

    def get_cache_key(self, request: Any, view: Any) -> str:
        return "convmem-test-throttle"


def test_the_projects_throttles_count_too(
    api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    OncePerDay.cache.delete("convmem-test-throttle")
    monkeypatch.setattr(ConvmemView, "throttle_classes", [OncePerDay])
    assert api.get(LIST).status_code == 200
    response = api.get(LIST)
    problem_of(response, 429, "throttled")
    assert int(response["Retry-After"]) > 80_000


def test_a_project_names_owners_in_its_own_way(settings: Any, alice: Any) -> None:
    settings.CONVMEM = {
        "OWNER": lambda request: Owner(name="org", id=request.headers["X-Org"])
    }
    client = client_of(alice)
    post(client, messages("talk"), user_says("hi"), **{"X-Org": "a"})
    found = client.get(LIST, headers={"X-Org": "a"}).json()["results"]
    assert [item["conversation_id"] for item in found] == ["talk"]
    assert client.get(LIST, headers={"X-Org": "b"}).json()["results"] == []


def test_visitors_with_an_owner_come_in_where_the_project_lets_them(
    settings: Any, monkeypatch: pytest.MonkeyPatch, db: None
) -> None:
    settings.CONVMEM = {
        "OWNER": lambda request: Owner(name="visit", id=request.headers["X-Visit"])
    }
    response = APIClient().get(LIST, headers={"X-Visit": "1"})
    problem_of(response, 401, "not_authenticated")  # the project's own permission
    monkeypatch.setattr(ConvmemView, "permission_classes", [permissions.AllowAny])
    assert APIClient().get(LIST, headers={"X-Visit": "1"}).status_code == 200


def test_a_user_without_an_owner_stays_out(settings: Any, api: Any) -> None:
    settings.CONVMEM = {"OWNER": lambda request: None}
    body = problem_of(api.get(LIST), 403, "permission_denied")
    assert "owner" in body["detail"]


def test_an_accept_header_that_nothing_fits(api: Any) -> None:
    response = api.get(LIST, headers={"Accept": "application/x-yaml"})
    problem_of(response, 406, "not_acceptable")


def test_a_browser_sees_the_error_as_a_page(api: Any) -> None:
    response = api.get(f"{LIST}none/", headers={"Accept": "text/html"})
    assert response.status_code == 404
    assert response["Content-Type"].startswith("text/html")
    assert b"conversation_not_found" in response.content


@pytest.mark.django_db
def test_the_projects_own_handler_is_neither_needed_nor_asked(
    monkeypatch: pytest.MonkeyPatch, api: Any
) -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError("the project's handler was asked")

    monkeypatch.setattr(api_settings, "EXCEPTION_HANDLER", refuse)
    problem_of(api.get(f"{LIST}none/"), 404, "conversation_not_found")


class Failing(ConvmemView):
    error: Any = None

    def get(self, request: Any) -> Any:
        raise self.error


def failing(error: Exception, user: Any) -> Any:
    request = APIRequestFactory().get("/")
    force_authenticate(request, user)
    return Failing.as_view(error=error)(request).render()


def test_a_providers_failure_keeps_its_secrets(alice: Any, caplog: Any) -> None:
    error = ProviderUnreachable("http://10.0.0.5:8000 refused", run_id="r1")
    body = problem_of(failing(error, alice), 502, "provider_unreachable")
    assert "10.0.0.5" not in json.dumps(body)
    assert body["run_id"] == "r1"
    assert "10.0.0.5" in caplog.text


def test_a_busy_store_asks_to_come_again(alice: Any) -> None:
    response = failing(StoreBusy("locked"), alice)
    problem_of(response, 503, "store_busy")
    assert response["Retry-After"] == "1"


def test_nested_errors_are_named_by_their_path(alice: Any) -> None:
    error = exceptions.ValidationError(
        {"a": [{"b": ["wrong"]}, {}], "non_field_errors": ["whole"]}
    )
    body = problem_of(failing(error, alice), 400, "bad_input")
    assert body["errors"] == [
        {"field": "a.b", "detail": "wrong", "code": "invalid"},
        {"field": None, "detail": "whole", "code": "invalid"},
    ]
    assert body["detail"] == "a.b: wrong; whole"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Http404("row 7"), 404, "not_found"),
        (PermissionDenied("x7"), 403, "permission_denied"),
    ],
)
def test_errors_of_the_framework_tell_no_more_than_their_kind(
    alice: Any, error: Exception, status: int, code: str
) -> None:
    body = problem_of(failing(error, alice), status, code)
    assert "7" not in body["detail"]


def test_a_body_that_ends_too_soon_is_the_callers_fault() -> None:
    class Cut:
        def read(self, *args: Any) -> bytes:
            raise UnreadablePostError("the client left")

    with pytest.raises(exceptions.ParseError, match="ended too soon"):
        StrictJSONParser().parse(Cut())


def test_a_bug_stays_a_bug(alice: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        failing(ZeroDivisionError("bug"), alice)


def test_the_anonymous_user_is_not_an_owner() -> None:
    request = APIRequestFactory().get("/")
    request.user = AnonymousUser()
    response = ConversationList.as_view(authentication_classes=[])(request).render()
    problem_of(response, 403, "permission_denied")
