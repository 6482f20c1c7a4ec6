"""The list of conversations: columns, search, filters, numbers of queries."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.test import override_settings

from convmem.admin import ConversationAdmin
from convmem.messages import Message
from convmem.models import Conversation
from convmem.owners import Owner
from tests.admin.conftest import ADA, NOBODY, page_url


def listed(client, **query: str) -> list[str]:
    """Return the conversation ids that the list shows, in its order."""
    response = client.get(page_url("changelist"), query)
    assert response.status_code == 200
    return [row.conversation_id for row in response.context["cl"].result_list]


def test_newest_activity_comes_first(make, staff) -> None:
    for day in (2, 3, 1):
        make([], f"day-{day}", start=datetime(2026, 1, day, tzinfo=UTC))
    assert listed(staff) == ["day-3", "day-2", "day-1"]


def test_a_row_says_who_what_how_much_and_leads_to_the_transcript(make, staff) -> None:
    messages = [
        Message.system("Be brief."),
        Message.user("How tall\nis Galdhøpiggen?"),
        Message.assistant("2,469 m."),
        Message.user("Thanks"),
    ]
    conversation = make(messages, "tall")
    page = staff.get(page_url("changelist")).content.decode()
    assert "How tall is Galdhøpiggen?" in page
    assert "Thanks" not in page
    assert "<bdi>user:42</bdi>" in page
    assert '<td class="field-message_count">4</td>' in page
    assert f'href="{page_url("transcript", conversation.pk)}"' in page


def test_ids_that_differ_in_a_space_can_be_told_apart(make, staff) -> None:
    make([], "t")
    make([], "t ")
    page = staff.get(page_url("changelist")).content.decode()
    assert "<bdi>t</bdi>" in page
    assert (
        '<bdi>t<span class="convmem-control" title="SPACE">U+0020</span></bdi>' in page
    )


# --- search ---


@pytest.fixture
def three(make) -> None:
    make(
        [Message.user("A refund, please"), Message.assistant("Refund sent")], "orders-1"
    )
    make([Message.user("Tell me a joke")], "jokes", owner=Owner(name="team", id="red"))
    make([], "empty", owner=NOBODY)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("refund", {"orders-1"}),
        ("REFUND sent", {"orders-1"}),
        ('"a joke"', {"jokes"}),
        ('"joke a"', set()),
        ("orders", {"orders-1"}),
        ("red", {"jokes"}),
        ("team:red", {"jokes"}),
        ("team:blue", set()),
        ("empty", {"empty"}),
        ("refund joke", set()),
        ("100%", set()),
        ("_", set()),
        ("", {"orders-1", "jokes", "empty"}),
        ('"', set()),
    ],
)
def test_search_looks_at_ids_owners_and_texts(three, staff, words, found) -> None:
    assert set(listed(staff, q=words)) == found


def test_a_conversation_is_found_once_whatever_it_repeats(make, staff) -> None:
    make([Message.user("again and again")] * 20, "echo")
    assert listed(staff, q="again") == ["echo"]


def test_search_without_the_right_to_read_stays_out_of_the_texts(
    three, staff, monkeypatch
) -> None:
    monkeypatch.setattr(
        ConversationAdmin, "has_view_content_permission", lambda *args: False
    )
    assert listed(staff, q="refund") == []
    assert listed(staff, q="orders") == ["orders-1"]
    page = staff.get(page_url("changelist")).content.decode()
    assert "Tell me a joke" not in page
    pk = Conversation.objects.get(conversation_id="jokes").pk
    assert f'href="{page_url("change", pk)}"' in page
    assert page_url("transcript", pk) not in page


# --- filters ---


def test_filter_by_kind_of_owner(three, staff) -> None:
    assert listed(staff, owner_kind="team") == ["jokes"]
    assert listed(staff, owner_kind="") == ["empty"]
    page = staff.get(page_url("changelist")).content.decode()
    assert "?owner_kind=user" in page
    assert ">nobody</a>" in page


def test_filter_by_trouble(make, staff) -> None:
    user = Message.user("hi")
    quoting = Message.tool("x", 'it says "is_error":true', metadata={"is_error": 0})
    make([user, Message.assistant("Hi")], "fine")
    make([user, quoting], "quoting")
    make([user, Message.assistant("H", status="incomplete")], "incomplete")
    make([Message.user("hi", status="failed")], "failed")
    make([user, Message.tool("x", "boom", is_error=True)], "tool")
    replies = [user, Message.assistant("a"), Message.assistant("b", supersedes=(2,))]
    make(replies, "superseded", statuses={2: "superseded"})
    kinds = {"incomplete", "failed", "tool", "superseded"}
    for kind in kinds:
        assert listed(staff, trouble=kind) == [kind]
    assert set(listed(staff, trouble="any")) == kinds
    assert len(listed(staff, trouble="nonsense")) == 6


def test_date_hierarchy_and_date_filter(make, staff) -> None:
    make([], "old", start=datetime(2025, 5, 6, tzinfo=UTC))
    make([], "new", start=datetime(2026, 5, 6, tzinfo=UTC))
    assert listed(staff, last_message_at__year="2025") == ["old"]
    assert listed(staff, created_at__gte="2026-01-01 00:00:00+00:00") == ["new"]
    page = staff.get(page_url("changelist")).content.decode()
    assert "?last_message_at__year=2025" in page


# --- queries ---


@pytest.mark.parametrize("query", [{}, {"q": "word"}, {"trouble": "any"}])
def test_number_of_queries_does_not_grow(
    make, staff, query, django_assert_max_num_queries, django_assert_num_queries
) -> None:
    failed = [Message.user("a word", status="failed")]
    make(failed)
    with django_assert_max_num_queries(12) as few:
        assert len(listed(staff, **query)) == 1
    for _ in range(59):
        make(failed * 3)
    with django_assert_num_queries(len(few)):
        assert len(listed(staff, **query)) == 50


def test_only_one_query_counts(make, staff, django_assert_max_num_queries) -> None:
    make([Message.user("x")])
    with django_assert_max_num_queries(12) as captured:
        listed(staff, q="x")
    counts = [q["sql"] for q in captured if "COUNT(" in q["sql"]]
    assert len(counts) == 1


# --- permissions ---


def test_view_permission_is_enough_to_read_and_search(make, staff_with) -> None:
    conversation = make([Message.user("hello")])
    client = staff_with("view_conversation")
    assert listed(client, q="hello") == [conversation.conversation_id]
    for name in ("transcript", "change", "history"):
        assert client.get(page_url(name, conversation.pk)).status_code == 200
    assert client.get(page_url("delete", conversation.pk)).status_code == 403


def test_staff_without_permission_see_nothing(make, staff_with) -> None:
    conversation = make([Message.user("hello")])
    client = staff_with()
    addresses = [page_url("changelist")]
    addresses += [page_url(n, conversation.pk) for n in ("transcript", "change")]
    addresses += [page_url("message", conversation.pk, 1)]
    addresses += [page_url("media", conversation.pk, 1, 0)]
    assert [client.get(url).status_code for url in addresses] == [403] * 5


def test_strangers_are_asked_to_log_in(make, client) -> None:
    url = page_url("transcript", make([Message.user("hello")]).pk)
    response = client.get(url)
    assert response.status_code == 302
    assert response["Location"].startswith("/admin/login/?next=")


def test_nobody_adds_or_changes_a_conversation(make, staff) -> None:
    conversation = make([Message.user("hello")], "kept")
    assert staff.get(page_url("add")).status_code == 403
    url = page_url("change", conversation.pk)
    assert staff.post(url, {"conversation_id": "other"}).status_code == 403
    conversation.refresh_from_db()
    assert conversation.conversation_id == "kept"


def test_the_page_of_facts_links_to_the_transcript(make, staff) -> None:
    conversation = make([Message.user("hello")], "facts")
    page = staff.get(page_url("change", conversation.pk)).content.decode()
    assert f'href="{page_url("transcript", conversation.pk)}"' in page
    assert conversation.key in page
    assert 'name="_save"' not in page


# --- deleting ---


def test_deleting_asks_first_and_says_how_much_goes(make, staff, superuser) -> None:
    make([Message.user("stays")], "other")
    conversation = make([Message.user("hello")] * 300, "gone")
    url = page_url("delete", conversation.pk)
    asked = staff.get(url).content.decode()
    assert "gone (300 messages)" in asked
    assert "<li>Messages: 300</li>" in asked
    assert "#1 user" not in asked
    assert staff.post(url, {"post": "yes"}).status_code == 302
    assert listed(staff) == ["other"]
    assert Conversation.objects.get().messages.count() == 1


def test_deleting_what_was_selected(make, staff, django_assert_max_num_queries) -> None:
    chosen = [make([Message.user("x")] * 5).pk for _ in range(20)]
    make([], "other")
    data = {"action": "delete_selected", "_selected_action": chosen}
    with django_assert_max_num_queries(12):
        asked = staff.post(page_url("changelist"), data).content.decode()
    assert "<li>Messages: 100</li>" in asked
    staff.post(page_url("changelist"), {**data, "post": "yes"})
    assert listed(staff) == ["other"]


def test_deleting_needs_its_permission(make, staff_with) -> None:
    conversation = make([Message.user("x")])
    client = staff_with("view_conversation", "delete_conversation")
    assert client.post(page_url("delete", conversation.pk), {"post": "yes"}).status_code
    assert not Conversation.objects.exists()


def test_the_list_is_translatable_and_right_to_left(make, staff) -> None:
    make([Message.user("x")], "x", owner=ADA)
    with override_settings(LANGUAGE_CODE="he"):
        page = staff.get(page_url("changelist")).content.decode()
    assert 'dir="rtl"' in page
