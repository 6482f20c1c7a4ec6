"""The CONVMEM setting is read live, and a wrong value is named where it is read."""

from __future__ import annotations

import threading

import pytest
from django.test import override_settings

from convmem import conf
from convmem.conf import DEFAULTS, settings
from convmem.exceptions import ConfigurationError


def somebody(request):
    return None


@override_settings()
def test_without_the_setting_every_default_holds():
    from django.conf import settings as django_settings

    del django_settings.CONVMEM
    assert settings.max_message_bytes == 1024 * 1024
    assert settings.max_rounds == 10
    assert settings.allow_run_in_transaction is False
    assert settings.table("STORES") == DEFAULTS["STORES"]
    assert settings.table("SERVICES") == {}


def test_a_changed_setting_counts_at_once_and_ends_with_its_block():
    with override_settings(CONVMEM={"MAX_ROUNDS": 3}):
        assert settings.max_rounds == 3
        with override_settings(CONVMEM={"MAX_ROUNDS": 4}):
            assert settings.max_rounds == 4
        assert settings.max_rounds == 3


def test_a_changed_setting_is_seen_by_other_threads():
    seen: list[int] = []
    with override_settings(CONVMEM={"MAX_ROUNDS": 5}):
        thread = threading.Thread(target=lambda: seen.append(settings.max_rounds))
        thread.start()
        thread.join()
    assert seen == [5]


@override_settings(CONVMEM={"STORES": {"archive": {"BACKEND": "a.B"}}})
def test_the_default_alias_stays_beside_the_projects_own():
    assert settings.table("STORES") == {
        **DEFAULTS["STORES"],
        "archive": {"BACKEND": "a.B"},
    }


@override_settings(CONVMEM={"STORES": {"default": {"BACKEND": "a.B"}}})
def test_the_default_alias_can_be_replaced():
    assert settings.table("STORES") == {"default": {"BACKEND": "a.B"}}


def test_every_key_is_a_table_or_has_a_property_of_its_name():
    for key, default in DEFAULTS.items():
        if not isinstance(default, dict):
            assert isinstance(getattr(conf.Settings, key.lower()), property), key


@pytest.mark.parametrize("value", [None, [], "CONVMEM", 3])
def test_a_setting_that_is_no_dict_is_named(value):
    with override_settings(CONVMEM=value):
        with pytest.raises(ConfigurationError, match="CONVMEM must be a dict, not "):
            _ = settings.max_rounds


@pytest.mark.parametrize("key", ["MAX_MESSAGE_BYTES", "MAX_ROUNDS"])
@pytest.mark.parametrize("value", [0, -1, True, "10", 1.5, None])
def test_a_number_below_one_or_of_another_type_is_named(key, value):
    with override_settings(CONVMEM={key: value}):
        with pytest.raises(ConfigurationError) as caught:
            getattr(settings, key.lower())
    assert caught.value.message == (
        f'CONVMEM["{key}"] must be a whole number of at least 1, not {value!r}.'
    )
    assert caught.value.code == "configuration_error"


@pytest.mark.parametrize("value", [1, "no", None])
def test_a_switch_takes_only_true_and_false(value):
    with override_settings(CONVMEM={"ALLOW_RUN_IN_TRANSACTION": value}):
        with pytest.raises(ConfigurationError, match="must be True or False, not"):
            _ = settings.allow_run_in_transaction


@pytest.mark.parametrize("value", [["user", "robot"], "user", None, [["user"]]])
def test_roles_are_a_list_of_known_roles(value):
    with override_settings(CONVMEM={"APPEND_ROLES": value}):
        with pytest.raises(ConfigurationError, match=r'CONVMEM\["APPEND_ROLES"\]'):
            _ = settings.append_roles


@override_settings(CONVMEM={"APPEND_ROLES": ["user"]})
def test_roles_of_the_project_replace_the_default():
    assert settings.append_roles == {"user"}


def test_a_table_that_is_no_dict_is_named_by_its_kind_alone():
    secret = "redis://:hunter2@cache/0"
    with override_settings(CONVMEM={"STORES": secret}):
        with pytest.raises(ConfigurationError) as caught:
            settings.table("STORES")
    assert caught.value.message == (
        'CONVMEM["STORES"] must be a dict of aliases, not str.'
    )


@pytest.mark.parametrize("value", ["tests.test_conf.somebody", somebody])
def test_the_owner_function_is_a_path_or_the_function_itself(value):
    with override_settings(CONVMEM={"OWNER": value}):
        assert settings.owner is somebody


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("tests.nowhere.owner", "'tests.nowhere.owner' cannot be imported"),
        ("tests.test_conf.nobody", "'tests.test_conf.nobody' cannot be imported"),
        ("owner", "'owner' cannot be imported"),
        ("tests.test_conf.DEFAULTS", "must be a function or the dotted path of one"),
        (7, "must be a function or the dotted path of one, not 7"),
    ],
)
def test_a_wrong_owner_function_is_named(value, said):
    with override_settings(CONVMEM={"OWNER": value}):
        with pytest.raises(ConfigurationError, match=said) as caught:
            _ = settings.owner
    assert caught.value.message.startswith('CONVMEM["OWNER"]')
