"""The public contract suite, over the default provider and over a minimal one."""

from __future__ import annotations

import pytest

from convmem.memory import DefaultMemoryProvider, MemoryProvider, TokenWindow
from convmem.stores import DatabaseStore, LocalStore
from convmem.testing.memory import MemoryProviderContract


class Minimal(MemoryProvider):
    """Writes the four abstract verbs and nothing else."""

    def __init__(self):
        self._kept = LocalStore(namespace="minimal")

    def history(self, conversation_id):
        return self._kept.get(conversation_id)

    def append(self, conversation_id, messages, *, key=None):
        return self._kept.add(conversation_id, messages)

    def prepare(self, conversation_id, messages):
        return [m for m in messages if m.role != "developer"]

    def clear(self, conversation_id):
        return self._kept.clear(conversation_id)


class Unkeyed(LocalStore):
    """A store that knows no idempotency keys."""

    supports_idempotency = False

    def add(self, conversation_id, messages, *, key=None):
        assert key is None
        return super().add(conversation_id, messages)


class TestDefaultOverLocalStore(MemoryProviderContract):
    def make_provider(self):
        return DefaultMemoryProvider(LocalStore(namespace="contract"))


@pytest.mark.django_db(transaction=True)
class TestDefaultOverDatabaseStore(MemoryProviderContract):
    def make_provider(self):
        return DefaultMemoryProvider(DatabaseStore(namespace="contract"))


@pytest.mark.django_db(transaction=True)
class TestDefaultOverAnAlias(MemoryProviderContract):
    def make_provider(self):
        return MemoryProvider.default()


class TestWindowed(MemoryProviderContract):
    def make_provider(self):
        return MemoryProvider.default(LocalStore(namespace="contract"), 5)


class TestBudgeted(MemoryProviderContract):
    def make_provider(self):
        store = LocalStore(namespace="contract")
        return DefaultMemoryProvider(store, TokenWindow(120))


class TestOverAStoreWithoutKeys(MemoryProviderContract):
    def make_provider(self):
        return DefaultMemoryProvider(Unkeyed(namespace="unkeyed"))


class TestMinimal(MemoryProviderContract):
    def make_provider(self):
        return Minimal()

    def test_the_default_plan_names_what_prepare_left_out(self):
        from .histories import A, D, S, U

        messages = [S(), D(), U("old"), A(), U("new")]
        view = self.provider.plan("c", messages, open_from=4)
        assert list(view.messages) == [messages[i] for i in (0, 2, 3, 4)]
        assert [(d.index, d.reason) for d in view.dropped] == [(1, "policy")]
        assert view.tokens.instructions > 0 and view.tokens.history > 0
        assert view.unread is None and view.flags == ()
