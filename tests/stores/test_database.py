"""What only the database store promises."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from convmem.exceptions import ConfigurationError, IdempotencyConflict
from convmem.handlers import stores
from convmem.messages import Message
from convmem.models import Conversation, StoredMessage
from convmem.owners import Owner, conversation_key
from convmem.stores import DatabaseStore, Totals
from convmem.stores.sql import Statements, statements

pytestmark = pytest.mark.django_db
TURN = ["q", Message.assistant("a")]
ANN = Owner(name="user", id="1")


@pytest.fixture
def store() -> DatabaseStore:
    return DatabaseStore()


def queries(call: Any) -> list[str]:
    """Return the statements of ``call``, without those that begin and end what keeps
    them together."""
    frame = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE", "ROLLBACK")
    with CaptureQueriesContext(connection) as captured:
        call()
    said = [query["sql"] for query in captured.captured_queries]
    return [sql for sql in said if not sql.startswith(frame)]


# --- the number of statements ---


class TestStatements:
    def test_an_append_is_at_most_two(self, store: DatabaseStore) -> None:
        store.add("t", TURN)
        expected = 1 if connection.vendor == "postgresql" else 2
        assert len(queries(lambda: store.add("t", TURN))) == expected

    def test_a_new_key_costs_none(self, store: DatabaseStore) -> None:
        store.add("t", TURN)
        plain = len(queries(lambda: store.add("t", TURN)))
        assert len(queries(lambda: store.add("t", TURN, key="k"))) == plain

    def test_superseding_costs_at_most_one(self, store: DatabaseStore) -> None:
        store.add("t", TURN)
        better = Message.assistant("b", supersedes=(2,))
        expected = 1 if connection.vendor == "postgresql" else 3
        assert len(queries(lambda: store.add("t", [better]))) == expected

    @pytest.mark.django_db(transaction=True)
    def test_an_append_begins_one_transaction(self, store: DatabaseStore) -> None:
        store.add("t", TURN)
        said: list[str] = []
        with CaptureQueriesContext(connection) as captured:
            if connection.vendor == "sqlite":
                connection.connection.set_trace_callback(said.append)
            store.add("t", TURN)
        if connection.vendor == "sqlite":  # begun and ended on the driver itself
            connection.connection.set_trace_callback(None)
            assert said[0] == "BEGIN IMMEDIATE"
            said = [sql for sql in said if not sql.startswith("SELECT")]  # of a key
        else:
            said = [query["sql"] for query in captured.captured_queries]
        expected = ["BEGIN", "UPDATE", "INSERT", "COMMIT"]
        if connection.vendor == "postgresql":  # one statement is a transaction
            expected = ["WITH"]
        assert [sql.split()[0] for sql in said] == expected

    @pytest.mark.parametrize(
        ("verb", "arguments"),
        [
            ("get", ()),
            ("newest", (20,)),
            ("window", (20,)),
            ("system_messages", ()),
            ("totals", ()),
        ],
    )
    @pytest.mark.parametrize("count", [0, 4, 300])
    def test_a_read_is_one(
        self, store: DatabaseStore, verb: str, arguments: Any, count: int
    ) -> None:
        if count:
            store.add("t", TURN * (count // 2))
        assert len(queries(lambda: getattr(store, verb)("t", *arguments))) == 1

    def test_chunks_read_as_they_are_asked(self, store: DatabaseStore) -> None:
        store.add("t", TURN * 100)
        assert len(queries(lambda: next(store.chunks("t", 64)))) == 1
        assert len(queries(lambda: list(store.chunks("t", 64)))) == 4

    @pytest.mark.django_db(transaction=True)  # MariaDB commits before it analyses
    def test_a_read_scans_no_history(self, store: DatabaseStore) -> None:
        """Plans find rows by index and sort nothing."""
        for number in range(20):
            store.add(f"t{number}", [Message.system("s"), *TURN * 100])
        key = store._key("t3")
        for statement, values in {
            "newest": {"key": key, "limit": 20},
            "newest_before": {"key": key, "before": 90, "limit": 20},
            "window": {"key": key, "limit": 20},
            "system": {"key": key},
        }.items():
            plan = explain(getattr(statements(connection), statement), values)
            for bad in ("SCAN convmem", "B-TREE", "Seq Scan on convmem_stored", "Sort"):
                assert bad not in plan, plan
            if statement in {"window", "system"}:
                assert "convmem_message_system" in plan, plan


def explain(sql: str, values: dict[str, Any]) -> str:
    """Return the plan that the database makes when it knows its tables."""
    tables = "convmem_storedmessage, convmem_conversation"
    analyze = {"mysql": f"ANALYZE TABLE {tables}", "sqlite": "ANALYZE"}
    word = {"sqlite": "EXPLAIN QUERY PLAN"}.get(connection.vendor, "EXPLAIN")
    with connection.cursor() as cursor:
        cursor.execute(analyze.get(connection.vendor, f"ANALYZE {tables}"))
        if connection.vendor == "mysql":
            cursor.fetchall()
        cursor.execute(f"{word} {sql}", values)
        return "\n".join(str(row) for row in cursor.fetchall())


# --- rows ---


class TestRows:
    def test_columns_say_what_the_body_says(self, store: DatabaseStore) -> None:
        at = datetime(2021, 3, 4, 5, 6, 7, 89, tzinfo=timezone(timedelta(hours=-3)))
        bound = store.for_owner(ANN)
        bound.add("Tä", [Message.user("hello", created_at=at), Message.assistant("hi")])
        conversation = Conversation.objects.get()
        assert conversation.key == conversation_key("default", ANN, "Tä")
        assert conversation.namespace == "default"
        assert (conversation.owner_name, conversation.owner_id) == ("user", "1")
        assert conversation.conversation_id == "Tä"
        assert (conversation.last_position, conversation.message_count) == (2, 2)
        assert conversation.created_at == at
        first, second = conversation.messages.order_by("position")
        assert (first.role, first.status, first.text) == ("user", "complete", "hello")
        assert first.created_at == at
        assert first.pk == (conversation.pk, 1)
        assert '"content":"hello"' in first.body
        assert conversation.last_message_at == second.created_at

    def test_an_old_message_does_not_set_activity_back(
        self, store: DatabaseStore
    ) -> None:
        store.add("t", ["new"])
        last = Conversation.objects.get().last_message_at
        store.add(
            "t", [Message.user("old", created_at=datetime(2001, 1, 1, tzinfo=UTC))]
        )
        assert Conversation.objects.get().last_message_at == last

    def test_superseded_rows_are_marked(self, store: DatabaseStore) -> None:
        store.add("t", [*TURN, Message.assistant("b")])
        store.add("u", [*TURN])
        store.add("t", [Message.assistant("c", supersedes=(2, 3))])
        rows = StoredMessage.objects.filter(status="superseded")
        assert list(rows.values_list("conversation__conversation_id", "position")) == [
            ("t", 2),
            ("t", 3),
        ]
        assert [m.status for m in store.get("t")] == ["complete"] * 4

    @pytest.mark.parametrize(
        "damage",
        ["", "{", "null", "[]", '{"role":"robot"}', '{"content":"x"}', "{}\x01"],
    )
    def test_a_damaged_row_hurts_nobody_else(
        self, store: DatabaseStore, damage: str
    ) -> None:
        added = store.add("t", ["q", Message.assistant("a"), "next"])
        StoredMessage.objects.filter(position=2).update(body=damage)
        for found in (
            store.get("t"),
            store.newest("t", 3),
            store.window("t", 3).messages,
        ):
            first, broken, last = found
            assert (first, last) == (added[0], added[2])
            assert broken == Message.assistant(
                "", status="corrupt", position=2, created_at=added[1].created_at
            )
        assert store.add("t", ["more"])[0].position == 4

    def test_rows_and_messages_of_a_page(self, store: DatabaseStore) -> None:
        added = store.add("t", TURN * 3)
        (conversation,) = store.conversations()
        page = store.rows(conversation).order_by("-position")[1:3]
        assert store.messages_of(page) == [added[4], added[3]]

    def test_conversations_are_the_owners_in_this_namespace(self) -> None:
        for namespace in ("one", "One"):
            for owner in (None, ANN, Owner(name="User", id="1")):
                DatabaseStore(namespace=namespace).for_owner(owner).add("t", ["x"])
        (found,) = DatabaseStore(namespace="one").for_owner(ANN).conversations()
        assert (found.namespace, found.owner_name, found.owner_id) == (
            "one",
            "user",
            "1",
        )

    def test_a_conversation_goes_with_its_messages(self, store: DatabaseStore) -> None:
        store.add("t", TURN)
        Conversation.objects.get().delete()
        assert not StoredMessage.objects.exists()
        assert store.add("t", TURN)[0].position == 1

    def test_erase_takes_the_row(self, store: DatabaseStore) -> None:
        store.add("t", TURN)
        store.erase("t")
        assert not Conversation.objects.exists()


class TestTimeZones:
    @pytest.mark.parametrize("use_tz", [True, False])
    @pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
    def test_times_are_exact_with_any_setting(
        self, settings: Any, store: DatabaseStore, use_tz: bool, zone: str
    ) -> None:
        settings.USE_TZ = use_tz
        settings.TIME_ZONE = zone
        at = datetime(2024, 6, 1, 12, 30, 15, 123456, tzinfo=UTC)
        added = store.add("t", [Message.user("x", created_at=at), "y"])
        assert store.get("t") == added
        assert added[0].created_at == at
        shown = StoredMessage.objects.get(position=1).created_at
        assert shown == (at if use_tz else _local(at, zone))


def _local(at: datetime, zone: str) -> datetime:
    hours = {"UTC": 0, "Asia/Kolkata": 5.5}[zone]
    return (at + timedelta(hours=hours)).replace(tzinfo=None)


# --- transactions ---


class Undo(Exception):
    pass


def _fail(*args: Any) -> None:
    raise Undo


class TestTransactions:
    def test_rolling_back_the_outer_one_leaves_nothing(
        self, store: DatabaseStore
    ) -> None:
        store.add("old", ["kept"])
        with pytest.raises(Undo), transaction.atomic():
            store.add("new", TURN, key="k")
            store.add("old", TURN)
            raise Undo
        assert store.get("new") == []
        assert not Conversation.objects.filter(conversation_id="new").exists()
        assert store.totals("old") == Totals(count=1, first_position=1, last_position=1)
        assert store.add("new", TURN, key="k")[0].position == 1

    def test_a_key_conflict_leaves_the_outer_one_usable(
        self, store: DatabaseStore
    ) -> None:
        store.add("t", TURN, key="k")
        with transaction.atomic():
            store.add("t", ["before"])
            with pytest.raises(IdempotencyConflict):
                store.add("t", ["other"], key="k")
            assert len(store.add("t", TURN, key="k")) == 2
            store.add("t", ["after"])
        assert [m.position for m in store.get("t")] == [1, 2, 3, 4]

    @pytest.mark.django_db(transaction=True)
    def test_a_failed_append_leaves_no_transaction_open(
        self, store: DatabaseStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.add("t", TURN, key="k")
        with pytest.raises(IdempotencyConflict):
            store.add("t", ["other"], key="k")
        with monkeypatch.context() as patch:
            patch.setattr(statements(connection), "_supersede", _fail)
            patch.setattr(statements(connection), "one_statement_append", False)
            patch.setattr("convmem.stores.sql.PostgreSQL.append", Statements.append)
            for conversation in ("t", "new"):
                with pytest.raises(Undo):
                    store.add(conversation, ["lost"])
        assert not connection.in_atomic_block
        with transaction.atomic(durable=True):
            assert [m.position for m in store.add("t", ["next"])] == [3]
        assert store.get("new") == []
        assert Conversation.objects.count() == 1

    @pytest.mark.django_db(transaction=True)
    def test_without_autocommit_the_caller_commits(self, store: DatabaseStore) -> None:
        if connection.vendor == "sqlite":
            pytest.skip("Django has no savepoints on SQLite without autocommit")
        store.add("t", ["kept"])
        transaction.set_autocommit(False)
        try:
            store.add("t", ["undone"])
            assert len(store.get("t")) == 2
            transaction.rollback()
            assert [m.content for m in store.get("t")] == ["kept"]
            transaction.rollback()
        finally:
            transaction.set_autocommit(True)


# --- set-up ---


class TestDatabases:
    def test_reads_go_where_writes_go(
        self, settings: Any, store: DatabaseStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A replica that the router names for reads is never asked."""
        settings.DATABASE_ROUTERS = ["tests.stores.test_database.ReplicaRouter"]
        added = store.add("t", TURN)
        assert store.database == "default"
        assert store.get("t") == added
        assert store.newest("t", 1) == added[1:]
        assert store.totals("t").count == 2
        assert list(store.conversations()) == list(
            Conversation.objects.using("default").all()
        )

    def test_using_names_the_database(self) -> None:
        assert DatabaseStore(using="other").database == "other"

    def test_aliases_do_not_share_unless_they_say_so(self, settings: Any) -> None:
        database = "convmem.stores.DatabaseStore"
        settings.CONVMEM = {
            "STORES": {
                "one": {"BACKEND": database},
                "two": {"BACKEND": database},
                "first": {"BACKEND": database, "OPTIONS": {"NAMESPACE": "one"}},
            }
        }
        added = stores["one"].add("t", ["x"])
        assert stores["two"].get("t") == []
        assert stores["first"].get("t") == added

    def test_an_unknown_kind_of_database_is_named(
        self, store: DatabaseStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connections["default"], "vendor", "oracle")
        with pytest.raises(ConfigurationError, match="oracle"):
            store.get("t")

    def test_the_tables_need_no_silenced_check(self) -> None:
        call_command("check", databases=["default"], fail_level="WARNING")
        call_command("makemigrations", "convmem", check=True, dry_run=True, verbosity=0)


class ReplicaRouter:
    """Reads go to a database that is not there."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "replica"

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "default"
