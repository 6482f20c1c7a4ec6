"""The default provider: what it reads, where it writes, and whose it is."""

from __future__ import annotations

import pytest

from convmem.exceptions import InvalidWindow, OwnerMismatch, UnknownStore
from convmem.handlers import memories
from convmem.memory import (
    Choice,
    DefaultMemoryProvider,
    History,
    MemoryProvider,
    MessageWindow,
    TokenWindow,
    TurnWindow,
    Unread,
    Window,
)
from convmem.memory.windows import CHUNK
from convmem.owners import Owner
from convmem.stores import LocalStore, Totals

from .histories import A, C, S, T, U, numbered

ANN = Owner(name="user", id="1")
BEN = Owner(name="user", id="2")


class Watched(LocalStore):
    """Counts the messages that each read hands out."""

    def __init__(self, namespace):
        super().__init__(namespace=namespace)
        self.calls = []

    def get(self, conversation_id):
        found = super().get(conversation_id)
        self.calls.append(("get", len(found)))
        return found

    def window(self, conversation_id, limit):
        found = _windowed(LocalStore.get(self, conversation_id), limit)
        self.calls.append(("window", len(found.messages)))
        return found

    def newest(self, conversation_id, limit, *, before=None):
        messages = LocalStore.get(self, conversation_id)
        if before is not None:
            messages = [m for m in messages if m.position < before]
        found = messages[max(len(messages) - limit, 0) :]
        self.calls.append(("newest", len(found)))
        return found


def _windowed(messages, limit):
    class Fixed(LocalStore):
        def get(self, conversation_id):
            return messages

    return Fixed(namespace="fixed").window("c", limit)


class Oldest(Window):
    """Keeps the first five; it says nothing of reading, so everything is read."""

    def choose(self, messages, open_from):
        return Choice(
            kept=tuple(range(5)),
            dropped=dict.fromkeys(range(5, len(messages)), "policy"),
        )


class QuestionsOnly(Window):
    """No suffix: what it leaves out makes room for older ones."""

    first_read = 4

    def choose(self, messages, open_from):
        kept = tuple(i for i, m in enumerate(messages) if m.role == "user")
        others = set(range(len(messages))) - set(kept)
        return Choice(kept=kept, dropped=dict.fromkeys(others, "policy"))


@pytest.fixture
def store(request):
    found = Watched(namespace=request.node.nodeid)
    found.add("c", [S("rules")])
    found.add("c", [m for i in range(500) for m in (U(f"q{i}"), A(f"a{i}"))])
    return found


class TestReading:
    def test_a_message_window_reads_n_in_one_go(self, store):
        history = DefaultMemoryProvider(store, 20).history("c")
        assert store.calls == [("window", 21)]
        assert history[0].text == "rules" and history[-1].text == "a499"
        assert history.totals.count == 1001

    def test_without_a_window_everything_is_read_once(self, store):
        history = DefaultMemoryProvider(store).history("c")
        assert store.calls == [("get", 1001)]
        assert isinstance(history, History) and history.totals.count == 1001

    def test_zero_reads_one_to_see_that_nothing_is_open(self, store):
        provider = DefaultMemoryProvider(store, 0)
        view = provider.plan("c", provider.history("c"))
        assert store.calls == [("window", 2)]
        assert [m.text for m in view.messages] == ["rules"]

    def test_a_budget_reads_chunks_until_it_is_full(self, store):
        provider = DefaultMemoryProvider(store, TokenWindow(1000))
        history = provider.history("c")
        assert store.calls[0][0] == "window"
        assert 64 < sum(size for _, size in store.calls) <= 4 * 200
        everything = LocalStore.get(store, "c")
        assert provider.prepare("c", history) == provider.prepare("c", everything)

    def test_a_budget_of_long_messages_is_read_in_one_go(self, store):
        for _ in range(30):
            store.add("c", [U("why? " * 60), A("because. " * 60)])
        provider = DefaultMemoryProvider(store, TokenWindow(1000))
        view = provider.plan("c", provider.history("c"))
        assert store.calls == [("window", 24)]
        assert 850 < view.tokens.total <= 1000

    def test_a_budget_of_short_messages_takes_a_second_read(self, store):
        provider = DefaultMemoryProvider(store, TokenWindow(300))
        view = provider.plan("c", provider.history("c"))
        assert [kind for kind, _ in store.calls] == ["window", "newest"]
        assert sum(size for _, size in store.calls) < 100
        assert 290 < view.tokens.total <= 300

    def test_turns_are_read_until_there_are_enough(self, store):
        provider = DefaultMemoryProvider(store, TurnWindow(50))
        view = provider.plan("c", provider.history("c"))
        assert len(view.messages) == 101 and view.messages[1].text == "q450"
        assert sum(size for _, size in store.calls) < 300

    def test_an_open_turn_longer_than_the_window_is_read_whole(self, store):
        turn = [U("now"), *(m for i in range(100) for m in (C(f"k{i}"), T(f"k{i}")))]
        store.add("c", turn)
        provider = DefaultMemoryProvider(store, 3)
        view = provider.plan("c", provider.history("c"))
        assert [m.text for m in view.messages[:2]] == ["rules", "now"]
        assert len(view.messages) == 202 and view.over_limit

    def test_an_open_turn_of_several_questions_is_read_whole(self, store):
        stored = store.add("c", [U("one"), U("two"), U("three")])
        provider = DefaultMemoryProvider(store, 1)
        history = provider.history("c")
        open_from = history.index(stored[0])
        view = provider.plan("c", history, open_from=open_from)
        assert [m.text for m in view.messages] == ["rules", "one", "two", "three"]
        assert sum(size for _, size in store.calls) < 80

    def test_many_system_messages_do_not_end_the_reading(self, store):
        store.add("c", [S(f"s{i}") for i in range(200)])
        provider = DefaultMemoryProvider(store, TurnWindow(2))
        view = provider.plan("c", provider.history("c"))
        assert [m.text for m in view.messages[-4:]] == ["q498", "a498", "q499", "a499"]
        assert len(view.messages) == 205

    @pytest.mark.parametrize(
        ("windows", "max_tokens"),
        [
            ([TokenWindow(600, system="latest")], None),
            ([MessageWindow(50, system="latest")], 600),
            ([Oldest()], 10),
            ([QuestionsOnly()], 90),
            ([QuestionsOnly()], None),
        ],
        ids=["latest", "latest, then all", "oldest", "filter, then budget", "filter"],
    )
    def test_a_part_that_was_read_gives_the_view_of_the_whole(
        self, request, windows, max_tokens
    ):
        store = LocalStore(namespace=request.node.nodeid)
        turn = [S("rule " * 100), U("q"), A("a")]
        store.add("c", [*turn * 40, S("last")])
        provider = DefaultMemoryProvider(store, *windows, max_tokens=max_tokens)
        read = provider.prepare("c", provider.history("c"))
        assert read == provider.prepare("c", store.get("c"))
        assert 1 < len(read) < 121

    def test_turns_behind_an_open_turn_of_several_questions_are_read(self, request):
        store = LocalStore(namespace=request.node.nodeid)
        store.add("c", [m for i in range(9) for m in (U(f"q{i}"), *[A("a")] * CHUNK)])
        first = store.add("c", [U(f"part {i}") for i in range(CHUNK)])[0]
        provider = DefaultMemoryProvider(store, TurnWindow(3))
        history = provider.history("c")
        view = provider.plan("c", history, open_from=history.index(first))
        asked = [m.text for m in view.messages if m.role == "user"]
        assert asked[:3] == ["q7", "q8", "part 0"] and len(asked) == 2 + CHUNK

    async def test_async_reads_are_the_same(self, store):
        for window in (None, 0, 7, TurnWindow(40), TokenWindow(900)):
            provider = DefaultMemoryProvider(store, window)
            history = await provider.ahistory("c")
            assert history == provider.history("c")
            assert history.totals == provider.history("c").totals

    async def test_async_reads_use_the_async_verbs_of_the_store(self):
        class Async(LocalStore):
            async def awindow(self, conversation_id, limit):
                return LocalStore.window(self, conversation_id, limit)

            def window(self, conversation_id, limit):
                raise AssertionError("a sync read in async code")

        provider = DefaultMemoryProvider(Async(namespace="async-verbs"), 5)
        await provider.aappend("c", [U("hi")])
        assert [m.text for m in await provider.ahistory("c")] == ["hi"]

    def test_superseded_replies_do_not_use_up_the_window(self, store):
        found = store.add("c", [U("again"), A("old")])
        store.add("c", [A("new", supersedes=(found[1].position,))])
        provider = DefaultMemoryProvider(store, 3)
        view = provider.plan("c", provider.history("c"))
        assert [m.text for m in view.messages] == ["rules", "a499", "again", "new"]


class TestUnread:
    def test_the_unread_stretch_is_told_from_the_counters(self, store):
        provider = DefaultMemoryProvider(store, 4)
        view = provider.plan("c", provider.history("c") + [U("new")])
        unread = view.unread
        assert (unread.count, unread.first_position, unread.last_position) == (
            996,
            2,
            997,
        )
        assert [m.text for m in view.messages[1:]] == ["a498", "q499", "a499", "new"]
        assert [(d.message.text, d.reason) for d in view.dropped] == [
            ("q498", "window")
        ]

    def test_nothing_is_unread_when_everything_was(self, store):
        provider = DefaultMemoryProvider(store)
        assert provider.plan("c", provider.history("c")).unread is None

    def test_system_messages_that_were_read_are_no_part_of_it(self):
        system = [S("a", position=1), S("b", position=4)]
        totals = Totals(count=4, first_position=1, last_position=4)
        provider = DefaultMemoryProvider(LocalStore(namespace="u"))
        unread = provider.plan("c", History(system, totals=totals)).unread
        assert unread == Unread(count=2, first_position=2, last_position=3)

    def test_an_empty_conversation_has_nothing_unread(self):
        history = History(totals=Totals())
        provider = DefaultMemoryProvider(LocalStore(namespace="u"))
        assert provider.plan("c", history + [U("hi")]).unread is None

    def test_a_plain_list_tells_nothing(self):
        provider = DefaultMemoryProvider(LocalStore(namespace="u"), 1)
        assert provider.plan("c", numbered([U("1"), A("2")], first=90)).unread is None


class TestOpenTurn:
    def provider(self, n):
        return DefaultMemoryProvider(LocalStore(namespace="o"), n)

    def test_open_from_keeps_an_input_of_several_messages(self):
        messages = [U("1"), A("2"), U("3"), A("example"), U("4")]
        view = self.provider(0).plan("c", messages, open_from=2)
        assert list(view.messages) == messages[2:]
        assert view.tokens.history == 0 and view.tokens.open_turn > 0

    def test_open_from_inside_a_turn_means_its_start(self):
        messages = [U("1"), A("2"), U("3"), C("x"), T("x")]
        view = self.provider(0).plan("c", messages, open_from=4)
        assert list(view.messages) == messages[2:]

    def test_open_from_at_the_end_means_that_nothing_is_open(self):
        messages = [U("1"), A("2"), U("3")]
        assert self.provider(0).plan("c", messages, open_from=3).messages == ()

    def test_open_from_counts_in_the_list_that_was_given(self):
        messages = numbered(
            [U("1"), A("old"), A("new", supersedes=(2,)), U("now"), A("so far")]
        )
        view = self.provider(0).plan("c", messages, open_from=3)
        assert [m.text for m in view.messages] == ["now", "so far"]


class TestSettingUp:
    def test_window_forms(self):
        assert DefaultMemoryProvider().windows == ()
        (window,) = DefaultMemoryProvider(window=3).windows
        assert isinstance(window, MessageWindow) and window.n == 3
        own = TurnWindow(1)
        assert DefaultMemoryProvider(window=own).windows == (own,)

    def test_messages_and_tokens_together(self):
        provider = DefaultMemoryProvider(LocalStore(namespace="b"), 3, max_tokens=30)
        view = provider.plan("c", [U("x" * 80), A("1"), U("2"), A("3")])
        assert [m.text for m in view.messages] == ["1", "2", "3"]
        assert {d.reason for d in view.dropped} == {"window"}
        view = provider.plan("c", [A("1"), U("y" * 100), A("2")])
        assert [m.text for m in view.messages] == ["2"]
        assert {d.reason for d in view.dropped} == {"budget"}

    @pytest.mark.parametrize("window", [-1, True, 1.5, "3", [3]])
    def test_a_wrong_window_is_refused_at_once(self, window):
        with pytest.raises(InvalidWindow):
            DefaultMemoryProvider(window=window)

    def test_a_wrong_store_is_refused_at_once(self):
        with pytest.raises(UnknownStore, match="dict"):
            DefaultMemoryProvider({})

    def test_an_alias_is_looked_up_at_use_and_not_before(self, settings):
        provider = DefaultMemoryProvider("later")
        with pytest.raises(UnknownStore, match="later"):
            provider.history("c")
        settings.CONVMEM = {
            "STORES": {"later": {"BACKEND": "convmem.stores.LocalStore"}}
        }
        assert provider.history("alias-test") == []
        assert provider.store.namespace == "later"

    def test_options_of_the_settings(self, settings):
        options = {
            "STORE": "local",
            "WINDOW": 9,
            "MAX_TOKENS": 500,
            "KEEP_FAILED": True,
            "REPAIR": False,
        }
        backend = "convmem.memory.DefaultMemoryProvider"
        settings.CONVMEM = {
            "STORES": {"local": {"BACKEND": "convmem.stores.LocalStore"}},
            "MEMORIES": {"chat": {"BACKEND": backend, "OPTIONS": options}},
        }
        provider = memories["chat"]
        assert isinstance(provider.store, LocalStore)
        assert [type(w) for w in provider.windows] == [MessageWindow, TokenWindow]
        assert provider.windows[0].n == 9 and provider.windows[1].max_tokens == 500
        assert provider.keep_failed and not provider.repair
        assert provider.check() == []

    def test_the_default_one(self):
        store = LocalStore(namespace="d")
        provider = MemoryProvider.default(store, window=2)
        assert isinstance(provider, DefaultMemoryProvider)
        assert provider.store is store and provider.windows[0].n == 2


class TestOwners:
    def test_a_bound_store_makes_a_bound_provider(self):
        ann = LocalStore(namespace="owners").for_owner(ANN)
        provider = DefaultMemoryProvider(ann)
        assert provider.owner == ANN and provider.for_owner(ANN) is provider
        with pytest.raises(OwnerMismatch):
            provider.for_owner(BEN)

    def test_binding_leaves_the_original_unbound(self):
        provider = DefaultMemoryProvider(LocalStore(namespace="owners"))
        bound = provider.for_owner(BEN)
        bound.append("mine", ["hello"])
        assert provider.history("mine") == []
        assert bound.store.owner == BEN


class TestReplay:
    """Appending twice to a store that knows no keys."""

    class Unkeyed(LocalStore):
        supports_idempotency = False

        def add(self, conversation_id, messages, *, key=None):
            return super().add(conversation_id, messages)

    @pytest.fixture
    def provider(self, request):
        return DefaultMemoryProvider(self.Unkeyed(namespace=request.node.nodeid))

    def test_the_same_batch_at_the_tail_is_a_replay(self, provider):
        batch = [U("a\x00b"), A((), metadata={"n": 1})]
        first = provider.append("c", batch, key="k")
        assert provider.append("c", batch, key="k") == first
        assert len(provider.history("c")) == 2

    def test_another_batch_is_stored(self, provider):
        provider.append("c", ["one"], key="k")
        provider.append("c", ["two"], key="l")
        assert [m.text for m in provider.history("c")] == ["one", "two"]

    def test_without_a_key_nothing_is_compared(self, provider):
        provider.append("c", ["one"])
        provider.append("c", ["one"])
        assert len(provider.history("c")) == 2

    async def test_the_same_in_async_code(self, provider):
        await provider.aappend("c", ["one"], key="k")
        await provider.aappend("c", ["one"], key="k")
        assert len(await provider.ahistory("c")) == 1
