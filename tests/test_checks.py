"""`manage.py check`: each wrong setting has an id, a place and a remedy."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.management import CommandError, call_command
from django.test import override_settings

from convmem.checks import check_deployment, check_settings
from tests.test_handlers import ListStore

STORE = {"BACKEND": "tests.test_handlers.ListStore"}
MEMORY = {"BACKEND": "tests.test_handlers.Memory"}
GOOD = {
    "STORES": {"default": STORE},
    "MEMORIES": {"default": MEMORY},
    "SERVICES": {"default": {"BACKEND": "tests.test_handlers.Service"}},
}


class CheckedStore(ListStore):
    """A store that finds fault with its own set-up."""

    def check(self) -> list[checks.CheckMessage]:
        return [checks.Warning("too short", hint="lengthen it", id="tests.W001")]


def found(**changes: Any) -> list[tuple[str, str, str]]:
    """Return (id, message, hint) of what the checks say about a good setting with some
    keys changed."""
    setting = {**deepcopy(GOOD), **changes}
    with override_settings(CONVMEM=setting):
        return [(m.id, m.msg, m.hint) for m in check_settings()]


def test_a_good_setting_passes():
    assert found() == []


def test_checks_are_registered_and_fail_the_command():
    with override_settings(CONVMEM={**GOOD, "MAX_ROUNDS": 0}):
        with pytest.raises(CommandError, match=r"\(convmem\.E003\)"):
            call_command("check", tags=["convmem"])


def test_checks_of_other_apps_alone_skip_ours():
    with override_settings(CONVMEM=None):
        assert check_settings([apps.get_app_config("auth")]) == []
        assert len(check_settings([apps.get_app_config("convmem")])) == 1


def test_checks_open_no_connection(django_assert_num_queries, db):
    with override_settings(CONVMEM={}), django_assert_num_queries(0):
        check_settings()


@pytest.mark.parametrize("value", [None, "text", ["STORES"]])
def test_a_setting_that_is_no_dict_is_e001_alone(value):
    with override_settings(CONVMEM=value):
        (message,) = check_settings()
    assert message.id == "convmem.E001"
    assert "CONVMEM must be a dict, not" in message.msg


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("MAX_MESAGE_BYTES", "Did you mean 'MAX_MESSAGE_BYTES'?"),
        ("stores", "Did you mean 'STORES'?"),
        ("QQQQ", "Known: STORES, MEMORIES, SERVICES, "),
    ],
)
def test_an_unknown_key_is_e002_with_a_guess(key, hint):
    ((number, message, said),) = found(**{key: 1})
    assert number == "convmem.E002"
    assert message == f"CONVMEM has no setting {key!r}."
    assert said.startswith(hint)


def test_an_unknown_key_of_an_alias_is_e002_with_its_place():
    assert found(STORES={"default": {**STORE, "OPTION": {}}}) == [
        (
            "convmem.E002",
            'CONVMEM["STORES"]["default"] has no key \'OPTION\'.',
            "Did you mean 'OPTIONS'?",
        )
    ]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("MAX_MESSAGE_BYTES", "1MiB", "at least 1, not '1MiB'"),
        ("MAX_ROUNDS", 0, "at least 1, not 0"),
        ("ALLOW_RUN_IN_TRANSACTION", "yes", "True or False, not 'yes'"),
        ("APPEND_ROLES", ["robot"], "must be a list of system, developer"),
        ("STORES", ["default"], "a dict of aliases, not list"),
        ("SERVICES", "openai", "a dict of aliases, not str"),
    ],
)
def test_a_value_of_a_wrong_kind_is_e003(key, value, said):
    ((number, message, hint),) = found(**{key: value})
    assert number == "convmem.E003"
    assert message.startswith(f'CONVMEM["{key}"] must be ')
    assert said in message
    assert hint.startswith("Correct it, or leave it out for the default: ")


@pytest.mark.parametrize(
    ("table", "config", "number", "said"),
    [
        ("STORES", "path.to.Store", "E003", "an alias must be a dict, not str"),
        ("STORES", {**STORE, "OPTIONS": 3}, "E003", "OPTIONS must be a dict, not int"),
        ("STORES", {}, "E004", "'BACKEND' is missing"),
        ("MEMORIES", {"BACKEND": "no.Memory"}, "E005", "'no.Memory' cannot be"),
        ("SERVICES", {"BACKEND": "builtins.dict"}, "E006", "has no complete"),
        ("STORES", MEMORY | {"BACKEND": "convmem.messages.Message"}, "E007", "namesp"),
        ("STORES", {**STORE, "OPTIONS": {"LIMIT": 0}}, "E007", "limit must be at lea"),
    ],
)
def test_an_alias_that_cannot_be_built_is_named(table, config, number, said):
    ((got, message, hint),) = found(**{table: {"default": config}})
    assert got == f"convmem.{number}"
    assert message.startswith(f'CONVMEM["{table}"]["default"]: ')
    assert said in message
    assert hint.endswith(".")


def test_every_wrong_alias_is_reported_not_the_first_alone():
    aliases = {"default": STORE, "a": {}, "b": {"BACKEND": "no.Store"}}
    assert [number for number, _, _ in found(STORES=aliases)] == [
        "convmem.E004",
        "convmem.E005",
    ]


class StoredMemory:
    def __init__(self, store: str) -> None:
        self.store = store

    def history(self, conversation_id): ...

    def append(self, conversation_id, messages): ...

    def prepare(self, conversation_id, messages): ...

    def clear(self, conversation_id): ...


def test_a_memory_over_an_unknown_store_is_e008():
    memory = {"BACKEND": "tests.test_checks.StoredMemory"}
    assert found(MEMORIES={"default": {**memory, "OPTIONS": {"STORE": "arcive"}}}) == [
        (
            "convmem.E008",
            'CONVMEM["MEMORIES"]["default"]: OPTIONS["STORE"] names the unknown store '
            "'arcive'.",
            'Name an alias of CONVMEM["STORES"]: default.',
        )
    ]
    assert (
        found(MEMORIES={"default": {**memory, "OPTIONS": {"STORE": "default"}}}) == []
    )


@pytest.mark.parametrize("path", ["no.where", "tests.test_checks.GOOD"])
def test_a_wrong_owner_function_is_e009(path):
    ((number, message, hint),) = found(OWNER=path)
    assert number == "convmem.E009"
    assert path in message
    assert "convmem.access.user_owner" in hint


def test_a_backend_reports_its_own_set_up():
    checked = {"BACKEND": "tests.test_checks.CheckedStore"}
    assert found(STORES={"default": STORE, "other": checked}) == [
        ("tests.W001", "too short", "lengthen it")
    ]


def test_a_secret_in_a_wrong_place_is_not_printed():
    secret = "redis://:hunter2@cache"
    said = found(STORES=secret, SERVICES={"default": secret})
    assert len(said) == 2
    assert "hunter2" not in repr(said)


# --- deployment ---


@override_settings(CONVMEM={"ALLOW_RUN_IN_TRANSACTION": True})
def test_running_in_a_transaction_is_w001_in_production():
    (message,) = check_deployment()
    assert message.id == "convmem.W001"
    assert "roll back" in message.msg


@override_settings(CONVMEM="wrong")
def test_a_wrong_setting_is_left_to_the_other_check():
    assert check_deployment() == []


@pytest.mark.parametrize("age", [60, None])
def test_kept_postgresql_connections_under_asgi_are_w002(age, monkeypatch):
    databases = {
        "default": {"ENGINE": "django.db.backends.sqlite3", "CONN_MAX_AGE": age},
        "main": {"ENGINE": "django.db.backends.postgresql", "CONN_MAX_AGE": age},
        "short": {"ENGINE": "django.db.backends.postgresql", "CONN_MAX_AGE": 0},
    }
    monkeypatch.setattr(settings, "DATABASES", databases)
    with override_settings(CONVMEM={}, ASGI_APPLICATION="site.asgi.application"):
        (message,) = check_deployment()
    assert message.id == "convmem.W002"
    assert f'DATABASES["main"] keeps connections open (CONN_MAX_AGE={age})' in (
        message.msg
    )
    with override_settings(CONVMEM={}, ASGI_APPLICATION=None):
        assert check_deployment() == []
