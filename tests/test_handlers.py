"""An alias becomes an instance: when, how often, and what a wrong one is told."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from convmem.exceptions import (
    ConfigurationError,
    UnknownMemory,
    UnknownService,
    UnknownStore,
)
from convmem.handlers import memories, services, stores
from convmem.stores.base import ChatMemory

HERE = "tests.test_handlers"


class ListStore(ChatMemory):
    """A store that keeps its messages on the instance."""

    def __init__(self, *, limit: int = 10, **options: Any) -> None:
        super().__init__(**options)
        if limit < 1:
            raise ValueError("limit must be at least 1")
        self.limit = limit
        self.messages: list[Any] = []

    def get(self, conversation_id: str) -> list[Any]:
        return list(self.messages)

    def add(self, conversation_id: str, messages: Any, *, key: str | None = None):
        self.messages += messages
        return list(messages)

    def clear(self, conversation_id: str) -> int:
        count, self.messages = len(self.messages), []
        return count


class HalfStore(ChatMemory):
    """An abstract class still: it has no verb of its own."""


class Picky:
    def __init__(self, **options: Any) -> None:
        raise ImproperlyConfigured("set PICKY_URL first")


class Service:
    def __init__(self, inner: str | None = None) -> None:
        self.inner = services[inner] if inner else None

    def complete(self, request): ...

    async def acomplete(self, request): ...

    def stream(self, request): ...

    async def astream(self, request): ...


class Memory:
    def __init__(self, window: int = 0) -> None:
        self.window = window

    def history(self, conversation_id): ...

    def append(self, conversation_id, messages): ...

    def prepare(self, conversation_id, messages): ...

    def clear(self, conversation_id): ...


def with_store(**config: Any) -> Any:
    return override_settings(CONVMEM={"STORES": {"lists": config}})


LISTS = {"BACKEND": f"{HERE}.ListStore"}
SERVICES = {
    "SERVICES": {
        "default": {"BACKEND": f"{HERE}.Service"},
        "outer": {"BACKEND": f"{HERE}.Service", "OPTIONS": {"INNER": "default"}},
    }
}


# --- building ---


@with_store(**LISTS, OPTIONS={"LIMIT": 3})
def test_options_become_arguments_in_lower_case():
    assert stores["lists"].limit == 3


@with_store(BACKEND=ListStore)
def test_a_backend_may_be_the_class_itself():
    assert type(stores["lists"]) is ListStore


@with_store(**LISTS)
def test_each_store_gets_its_alias_as_namespace():
    assert stores["lists"].namespace == "lists"


@with_store(**LISTS, OPTIONS={"NAMESPACE": "shared"})
def test_a_namespace_in_the_options_wins():
    assert stores["lists"].namespace == "shared"


@override_settings(
    CONVMEM={
        "MEMORIES": {
            "short": {"BACKEND": f"{HERE}.Memory", "OPTIONS": {"WINDOW": 4}},
        }
    }
)
def test_memories_are_built_the_same_way():
    assert memories["short"].window == 4
    assert memories["short"] is memories["short"]


@with_store(**LISTS)
def test_a_handler_lists_its_aliases():
    assert set(stores) == {"default", "lists"}
    assert "lists" in stores
    assert "other" not in stores


# --- one for whom, and until when ---


@with_store(**LISTS)
def test_one_thread_has_one_instance_and_another_thread_its_own():
    mine = stores["lists"]
    assert stores["lists"] is mine
    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(lambda: stores["lists"]).result()
        assert pool.submit(lambda: stores["lists"]).result() is theirs
    assert theirs is not mine


@with_store(**LISTS)
async def test_a_task_and_its_sync_hops_share_an_instance():
    mine = stores["lists"]
    assert await sync_to_async(lambda: stores["lists"])() is mine


@with_store(**LISTS)
def test_a_sync_thread_and_its_async_hops_share_an_instance():
    async def look() -> ChatMemory:
        return stores["lists"]

    assert async_to_sync(look)() is stores["lists"]


@override_settings(CONVMEM=SERVICES)
def test_a_service_is_one_for_the_whole_process():
    barrier = threading.Barrier(8)

    def look(_: int) -> Any:
        barrier.wait(timeout=10)
        return services["default"]

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(look, range(8)))
    assert found == {services["default"]}
    assert asyncio.run(sync_to_async(look_once)()) is services["default"]


def look_once() -> Any:
    return services["default"]


@override_settings(CONVMEM=SERVICES)
def test_a_service_may_wrap_another_alias():
    assert services["outer"].inner is services["default"]


def test_a_changed_setting_builds_anew_and_an_equal_one_does_not():
    with with_store(**LISTS, OPTIONS={"LIMIT": 3}):
        first = stores["lists"]
    with with_store(**LISTS, OPTIONS={"LIMIT": 4}):
        second = stores["lists"]
        assert second is not first
        assert second.limit == 4
        with with_store(**LISTS, OPTIONS={"LIMIT": 4}):
            assert stores["lists"] is second


# --- refusals ---


@pytest.mark.parametrize(
    ("handler", "table", "error"),
    [
        (stores, "STORES", UnknownStore),
        (memories, "MEMORIES", UnknownMemory),
        (services, "SERVICES", UnknownService),
    ],
)
def test_an_unknown_alias_names_the_known_ones(handler, table, error):
    aliases = {"b": {"BACKEND": "x.Y"}, "a": {"BACKEND": "x.Y"}}
    with override_settings(CONVMEM={table: {"default": {}, **aliases}}):
        with pytest.raises(error) as caught:
            handler["c"]
    assert caught.value.message == (
        f"CONVMEM[\"{table}\"] has no alias 'c'; known: a, b, default."
    )
    assert caught.value.details == {"alias": "c"}


@override_settings(CONVMEM={})
def test_an_empty_table_says_that_it_knows_none():
    with pytest.raises(UnknownService, match="known: none"):
        services["default"]


REFUSALS = [
    ("text", "not_a_dict", "an alias must be a dict, not str"),
    ({}, "no_backend", "'BACKEND' is missing"),
    ({"BACKEND": ""}, "no_backend", "'BACKEND' is missing"),
    ({"BACKEND": "nowhere.Store"}, "not_importable", "'nowhere.Store' cannot be"),
    ({"BACKEND": f"{HERE}.Nothing"}, "not_importable", "cannot be imported"),
    ({"BACKEND": "Store"}, "not_importable", "'Store' cannot be imported"),
    ({"BACKEND": f"{HERE}.HERE"}, "wrong_kind", "is not a class"),
    ({"BACKEND": 7}, "wrong_kind", "BACKEND 7 is not a class"),
    (
        {"BACKEND": "builtins.dict"},
        "wrong_kind",
        "BACKEND 'builtins.dict' has no add",
    ),
    ({**LISTS, "OPTIONS": ["LIMIT"]}, "not_a_dict", "OPTIONS must be a dict, not list"),
    ({**LISTS, "OPTIONS": {"SIZE": 3}}, "options_refused", "'size'"),
    ({**LISTS, "OPTIONS": {"LIMIT": 0}}, "options_refused", "at least 1"),
    ({"BACKEND": f"{HERE}.HalfStore"}, "options_refused", "abstract"),
    ({"BACKEND": f"{HERE}.Picky"}, "options_refused", "set PICKY_URL first"),
]


@pytest.mark.parametrize(("config", "problem", "said"), REFUSALS)
def test_a_wrong_alias_is_refused_by_its_place(config, problem, said):
    with override_settings(CONVMEM={"STORES": {"lists": config}}):
        with pytest.raises(UnknownStore) as caught:
            stores["lists"]
    assert caught.value.message.startswith('CONVMEM["STORES"]["lists"]: ')
    assert said in caught.value.message
    assert caught.value.details == {"alias": "lists", "problem": problem}
    assert isinstance(caught.value, ConfigurationError)


def test_a_refusal_never_prints_what_stands_in_a_wrong_place():
    with override_settings(CONVMEM={"STORES": {"lists": "redis://:hunter2@cache"}}):
        with pytest.raises(UnknownStore) as caught:
            stores["lists"]
    assert "hunter2" not in str(caught.value)


@with_store(**LISTS, OPTIONS={"LIMIT": 0})
def test_a_refused_alias_is_refused_again():
    for _ in range(2):
        with pytest.raises(UnknownStore):
            stores["lists"]
