"""What models and users wrote is text in the page's source, wherever it stands."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from django.urls import reverse

from convmem.admin import ConversationAdmin
from convmem.messages import Message
from convmem.models import Run
from convmem.owners import Owner
from tests.admin.conftest import page_url
from tests.admin.hostile import MARK, TEXTS, URLS, hostile_messages

# What Django's and our own templates are made of.
TAGS = frozenset(
    re.findall(
        r"\w+",
        """html head title meta link script body div header main nav a ul ol li h1 h2
        h3 span p dl dt dd form label input button article section details summary pre
        code bdi time footer img svg symbol path use table thead tbody tr th td caption
        search select option fieldset legend textarea br strong small aside""",
    )
)


class Source(HTMLParser):
    """Collects what a page would do."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.handlers: list[str] = []
        self.addresses: list[str] = []
        self.inline: list[str] = []
        self.in_script = False
        self.feed(html)

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.add(tag)
        self.in_script = tag == "script" and "src" not in dict(attrs)
        for name, value in attrs:
            if name.startswith("on") or name in ("style", "srcdoc", "autofocus"):
                self.handlers.append(f"{tag} {name}={value}")
            if name in ("href", "src", "action", "formaction"):
                self.addresses.append(value or "")

    def handle_data(self, data) -> None:
        if self.in_script and data.strip():
            self.inline.append(data)
        self.in_script = False


def check(html: str) -> None:
    source = Source(html)
    assert source.tags <= TAGS, source.tags - TAGS
    assert source.handlers == []
    assert source.inline == []
    for address in source.addresses:
        known = ("/admin/", "/static/", "?", "#", "https://example.com/")
        assert address in ("", "/") or address.startswith(known), address


def test_the_transcript_and_the_page_of_each_message(make, staff, monkeypatch) -> None:

    monkeypatch.setattr(ConversationAdmin, "transcript_page_size", 200)
    messages = hostile_messages()
    conversation = make(messages, TEXTS[0], Owner(name=TEXTS[1], id=TEXTS[2]))
    html = staff.get(page_url("transcript", conversation.pk)).content.decode()
    check(html)
    assert MARK in html
    assert "&lt;script&gt;" in html
    for position in range(1, len(messages) + 1):
        check(
            staff.get(page_url("message", conversation.pk, position)).content.decode()
        )


@pytest.mark.parametrize("text", TEXTS)
def test_lists_and_forms_show_ids_and_owners_as_text(make, staff, text) -> None:
    conversation = make([Message.user(text)], text, Owner(name=text, id=text))
    pages = [page_url("changelist"), f"{page_url('changelist')}?owner_kind=user"]
    pages += [
        page_url(name, conversation.pk) for name in ("change", "delete", "history")
    ]
    run = Run.objects.create(
        agent_name=text,
        owner_name=text,
        owner_id=text,
        conversation_id=text,
        input=text,
        output=text,
        error_code=text[:64],
        error_message=text,
        model=text,
    )
    pages.append(reverse("admin:convmem_run_changelist"))
    pages += [
        reverse(f"admin:convmem_run_{name}", args=[run.pk])
        for name in ("change", "delete", "history")
    ]
    for url in pages:
        response = staff.get(url)
        assert response.status_code == 200
        assert f"<script>{MARK}" not in response.content.decode()
        check(response.content.decode())


def test_search_words_and_positions_come_back_as_text(make, staff) -> None:
    conversation = make([Message.user("x")])
    for text in (*TEXTS, *URLS):
        response = staff.get(page_url("changelist"), {"q": text.replace("\x00", "")})
        check(response.content.decode())
        response = staff.get(page_url("transcript", conversation.pk), {"before": text})
        check(response.content.decode())
