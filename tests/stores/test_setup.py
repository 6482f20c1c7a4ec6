"""What the stores' checks find in the settings, and what they leave alone."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from convmem.exceptions import ConfigurationError
from convmem.handlers import stores
from convmem.stores import CacheStore, DatabaseStore, LocalStore

GOOD = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": "PRAGMA journal_mode=WAL;",
}
BACKEND = "django.core.cache.backends."


def ids(store: Any) -> list[str]:
    return [message.id for message in store.check()]


@pytest.fixture
def sqlite(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Pretend that the default database is SQLite with these options."""

    def pretend(name: object = tmp_path / "x.sqlite3", **options: Any) -> DatabaseStore:
        connection = connections["default"]
        monkeypatch.setattr(connection, "vendor", "sqlite")
        settings = {**connection.settings_dict, "NAME": name, "OPTIONS": options}
        monkeypatch.setattr(connection, "settings_dict", settings)
        return DatabaseStore()

    return pretend


def test_sqlite_as_it_should_be(sqlite: Any) -> None:
    assert ids(sqlite(**GOOD)) == []


def test_sqlite_as_django_sets_it_up(sqlite: Any) -> None:
    found = sqlite().check()
    assert [m.id for m in found] == ["convmem.W010", "convmem.W011"]
    assert "journal_mode=WAL" in found[0].hint
    assert "IMMEDIATE" in found[1].hint


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"timeout": 0.1}, ["convmem.W012"]),
        ({"transaction_mode": "deferred"}, ["convmem.W011"]),
        ({"transaction_mode": "EXCLUSIVE"}, []),
        ({"transaction_mode": "immediate"}, []),
        ({"init_command": ""}, ["convmem.W010"]),
        ({"init_command": "PRAGMA journal_mode = 'wal'"}, []),
        ({"init_command": "pragma journal_mode(WAL)"}, []),
        ({"init_command": "PRAGMA journal_mode=DELETE"}, ["convmem.W010"]),
    ],
)
def test_each_option_of_sqlite(sqlite: Any, change: Any, expected: list[str]) -> None:
    assert ids(sqlite(**{**GOOD, **change})) == expected


@pytest.mark.parametrize(("mode", "expected"), [("WAL", []), ("DELETE", ["W010"])])
def test_a_file_that_logs_ahead_already_is_fine(
    sqlite: Any, tmp_path: Path, mode: str, expected: list[str]
) -> None:
    file = sqlite3.connect(tmp_path / "y.sqlite3")
    file.execute(f"PRAGMA journal_mode={mode}")
    file.execute("CREATE TABLE t (x)")
    file.close()
    store = sqlite(tmp_path / "y.sqlite3", **{**GOOD, "init_command": ""})
    assert ids(store) == [f"convmem.{number}" for number in expected]


@pytest.mark.parametrize("name", [":memory:", "file:memorydb?mode=memory&cache=shared"])
def test_a_database_in_memory_needs_no_log(sqlite: Any, name: str) -> None:
    assert ids(sqlite(name, **{**GOOD, "init_command": ""})) == []


def test_an_unknown_database_alias() -> None:
    (found,) = DatabaseStore(using="nowhere").check()
    assert (found.id, found.is_serious()) == ("convmem.E010", True)
    assert "'nowhere'" in found.msg
    assert "default" in found.hint


def test_a_kind_of_database_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["default"], "vendor", "oracle")
    (found,) = DatabaseStore().check()
    assert (found.id, "oracle" in found.msg) == ("convmem.E011", True)


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        ("filebased.FileBasedCache", ["convmem.E013"]),
        ("db.DatabaseCache", ["convmem.E013"]),
        ("dummy.DummyCache", ["convmem.E013"]),
        ("locmem.LocMemCache", ["convmem.W013"]),
        ("redis.RedisCache", []),
        ("memcached.PyMemcacheCache", []),
    ],
)
def test_kinds_of_caches(settings: Any, backend: str, expected: list[str]) -> None:
    settings.CACHES = {"default": {"BACKEND": BACKEND + backend, "LOCATION": "x"}}
    assert ids(CacheStore()) == expected


def test_an_unknown_cache_alias(settings: Any) -> None:
    store = CacheStore(cache="nowhere")
    (found,) = store.check()
    assert (found.id, "'nowhere'" in found.msg) == ("convmem.E012", True)
    with pytest.raises(ConfigurationError, match="nowhere"):
        store.get("t")


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_timeout_that_forgets_at_once_is_refused(timeout: int) -> None:
    with pytest.raises(ConfigurationError, match="timeout"):
        CacheStore(timeout=timeout)


def test_a_local_store_has_nothing_to_check() -> None:
    assert LocalStore().check() == []


def test_aliases_build_stores_with_their_options(settings: Any) -> None:
    settings.CONVMEM = {
        "STORES": {
            "quick": {
                "BACKEND": "convmem.stores.CacheStore",
                "OPTIONS": {"CACHE": "redis", "TIMEOUT": 60},
            },
            "local": {"BACKEND": "convmem.stores.LocalStore"},
        }
    }
    quick, local = stores["quick"], stores["local"]
    assert isinstance(quick, CacheStore)
    assert (quick.namespace, quick.cache, quick.timeout) == ("quick", "redis", 60)
    assert isinstance(local, LocalStore)
    assert local.namespace == "local"
