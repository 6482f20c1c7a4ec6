"""The transcript page: what it shows of each kind of message, pages, links."""

from __future__ import annotations

import re

import pytest
from django.utils.html import escape

from convmem.admin import ConversationAdmin, Limits
from convmem.messages import (
    AudioPart,
    FilePart,
    ImagePart,
    Message,
    OpaquePart,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
    Usage,
)
from convmem.models import Conversation
from convmem.stores import DatabaseStore
from tests.admin.conftest import page_url
from tests.transcripts import transcripts


def read(client, conversation, **query) -> str:
    response = client.get(page_url("transcript", conversation.pk), query)
    assert response.status_code == 200
    return response.content.decode()


def article(page: str, position: int) -> str:
    """Return the HTML of one message."""
    start = page.index(f'<article id="m{position}"')
    return page[start : page.index("</article>", start)]


def words(html: str) -> str:
    """Return what a reader sees of ``html``."""
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_what_a_store_wrote_can_be_read(db, staff) -> None:
    store = DatabaseStore()
    store.add("hello", [Message.user("Hi there"), Message.assistant("Good day")])
    page = read(staff, Conversation.objects.get())
    assert "Hi there" in article(page, 1)
    assert "User" in words(article(page, 1))
    assert "Good day" in article(page, 2)
    assert "Assistant" in words(article(page, 2))


def test_a_message_shows_name_time_model_usage_and_metadata(make, staff) -> None:
    message = Message.assistant(
        "Yes",
        name="Oracle",
        model="gpt-4o",
        usage=Usage(
            input_tokens=100, output_tokens=7, cached_tokens=64, reasoning_tokens=3
        ),
        metadata={"trace": "abc"},
    )
    shown = words(article(read(staff, make([message])), 1))
    assert "Assistant Oracle" in shown
    assert "#1 03/01/2026 noon" in shown
    assert "Model gpt-4o" in shown
    assert "100 in (64 cached) · 7 out (3 reasoning)" in shown
    assert "{ &quot;trace&quot;: &quot;abc&quot; }" in shown


def test_zero_tokens_are_shown_and_unknown_ones_are_not(make, staff) -> None:
    page = read(
        staff,
        make(
            [
                Message.assistant("a", usage=Usage(input_tokens=0, output_tokens=0)),
                Message.assistant("b", usage=Usage(output_tokens=5)),
                Message.assistant("c", usage=Usage(total_tokens=9)),
                Message.assistant("d"),
            ]
        ),
    )
    shown = [words(article(page, n)) for n in (1, 2, 3, 4)]
    assert "Tokens 0 in · 0 out" in shown[0]
    assert "Tokens 5 out" in shown[1]
    assert "Tokens 9 in all" in shown[2]
    assert "Tokens" not in shown[3]


def test_states_are_told_by_words(make, staff) -> None:
    page = read(
        staff,
        make(
            [
                Message.user("a", status="failed"),
                Message.assistant("b", status="incomplete"),
                Message.assistant("c"),
                Message.assistant("d", supersedes=(3,)),
                Message.user("e", sanitized=True),
                '{"role": "assist',
                Message.assistant("g"),
            ],
            statuses={3: "superseded"},
        ),
    )
    badges = [
        re.findall(r'class="convmem-badge [\w-]+">([^<]*)<', article(page, n))
        for n in range(1, 8)
    ]
    assert badges == [
        ["failed"],
        ["incomplete"],
        ["superseded"],
        [],
        ["sanitized"],
        ["corrupt"],
        [],
    ]
    assert "Replaces #3" in words(article(page, 4))


def test_a_reply_that_a_later_one_names_is_superseded_without_its_column(
    make, staff
) -> None:
    page = read(
        staff,
        make([Message.assistant("old"), Message.assistant("new", supersedes=(1,))]),
    )
    assert "superseded" in words(article(page, 1))


@pytest.mark.parametrize(
    "body",
    ["", "nonsense", "null", "[]", '{"role":"nobody"}', '{"role":5}', "{" * 5000],
)
def test_a_row_that_cannot_be_read_is_shown_and_the_page_stays(
    make, staff, body
) -> None:
    page = read(staff, make([Message.user("before"), body, Message.user("after")]))
    assert "before" in article(page, 1)
    assert "after" in article(page, 3)
    broken = article(page, 2)
    assert "This row cannot be read as a message" in broken
    assert "".join(escape(body).split()) in "".join(broken.split())


# --- tools ---


def call(call_id: str, arguments: str = "{}", name: str = "look") -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


def test_calls_stand_with_their_results(make, staff) -> None:
    page = read(
        staff,
        make(
            [
                Message.user("Weather?"),
                Message.assistant(
                    None,
                    tool_calls=(
                        call("a", '{"city":"Oslo","n":1.50}'),
                        call("b", '{"city":"\\u00c5l"}'),
                    ),
                ),
                Message.tool("b", '{"sky":"clear"}'),
                Message.tool("a", "no such city", is_error=True),
                Message.assistant("Clear."),
            ]
        ),
    )
    assert re.findall(r'<article id="m(\d+)"', page) == ["1", "2", "5"]
    first, second = article(page, 2).split('<div class="convmem-call"')[1:]
    assert "{\n  &quot;city&quot;: &quot;Oslo&quot;,\n  &quot;n&quot;: 1.50\n}" in first
    assert 'id="m4"' in first
    assert "no such city" in first
    assert '<details class="convmem-fold convmem-result" open>' in first
    assert ">error<" in first
    assert "{\n  &quot;city&quot;: &quot;Ål&quot;\n}" in second
    assert 'id="m3"' in second
    assert "{\n  &quot;sky&quot;: &quot;clear&quot;\n}" in second
    assert ">error<" not in second
    assert '<details class="convmem-fold convmem-result">' in second


def test_broken_arguments_are_shown_as_they_are(make, staff) -> None:
    page = read(staff, make([Message.assistant(tool_calls=(call("a", '{"x": tru'),))]))
    assert "not valid JSON" in page
    assert "{&quot;x&quot;: tru</pre>" in page


def test_a_call_without_arguments_and_result_says_so(make, staff) -> None:
    page = read(staff, make([Message.assistant(tool_calls=(call("a", ""),))]))
    shown = words(article(page, 1))
    assert "No arguments." in shown
    assert "no result" in shown
    assert "not valid JSON" not in shown


def test_a_result_without_its_call_stands_alone(make, staff) -> None:
    page = read(staff, make([Message.user("x"), Message.tool("lost", "hm")]))
    shown = words(article(page, 2))
    assert "No call of this turn has its id, lost" in shown
    assert "hm" in shown


def test_a_pair_over_two_pages_is_shown_on_both(make, staff, monkeypatch) -> None:
    monkeypatch.setattr(ConversationAdmin, "transcript_page_size", 2)
    asked = Message.assistant(tool_calls=(call("a", name="forecast"),))
    conversation = make([Message.user("?"), asked, Message.tool("a", "sun"), asked])
    older = read(staff, conversation, before=3)
    assert "stands on another page" in words(article(older, 2))
    assert "sun" in article(older, 2)
    assert 'id="m3"' not in older
    newer = read(staff, conversation)
    assert "Answers the call of forecast in message #2" in words(article(newer, 3))
    assert f'{page_url("transcript", conversation.pk)}?at=2"' in newer


# --- parts ---


def test_parts_are_shown_each_in_its_way(make, staff) -> None:
    message = Message.assistant(
        (
            ReasoningPart(text="Let me think", signature="sig", producer="claude"),
            ReasoningPart(redacted="x" * 40),
            TextPart(text="Here:"),
            RefusalPart(text="I will not."),
            OpaquePart(data={"type": "citation", "n": 1e2}),
        )
    )
    shown = article(read(staff, make([message])), 1)
    folds = re.findall(
        r"<details class=\"convmem-fold\"><summary>(.*?)</summary>", shown
    )
    assert [words(one) for one in folds] == [
        "Reasoning · claude · signed",
        "Reasoning · encrypted, 40 characters",
        "Other content · citation",
    ]
    assert "Let me think" in shown
    assert "No readable text." in shown
    assert "refusal I will not." in words(shown)
    assert "&quot;type&quot;: &quot;citation&quot;" in shown


def test_media_is_never_loaded_from_elsewhere(make, staff) -> None:
    message = Message.user(
        (
            ImagePart(url="https://example.com/a.png"),
            ImagePart(url="javascript:alert(1)"),
            ImagePart(url="//example.com/b.png"),
            ImagePart(url="http:///nohost"),
            AudioPart(file_id="file-123", format="mp3"),
            FilePart(url="data:text/html,<script>alert(1)</script>", filename="x.html"),
        )
    )
    shown = article(read(staff, make([message])), 1)
    assert "<img" not in shown
    hrefs = re.findall(r'href="([^"]*)"', shown)
    assert "https://example.com/a.png" in hrefs
    assert not [
        h for h in hrefs if h.startswith(("javascript", "data", "//", "http:/"))
    ]
    assert words(shown).count("not a link that may be followed") == 3
    assert "Audio · mp3 · file-123" in words(shown)
    assert "File · text/html · x.html" in words(shown)


def test_an_empty_message_says_so(make, staff) -> None:
    page = read(staff, make([Message.assistant(""), Message.user(())]))
    assert "Empty message." in article(page, 1)
    assert "Empty message." in article(page, 2)


def test_long_texts_are_cut_and_whole_on_their_own_page(make, staff) -> None:
    text = "a" * 20_000 + "tail"
    conversation = make([Message.user(text)])
    shown = article(read(staff, conversation), 1)
    assert "tail" not in shown
    assert "4 more characters." in words(shown)
    assert "Raw JSON" not in words(shown).replace("raw JSON", "")
    alone = staff.get(page_url("message", conversation.pk, 1)).content.decode()
    assert alone.count(text) == 2


def test_the_page_of_one_message_shows_its_row(make, staff) -> None:
    conversation = make([Message.user("hello", name="Ada"), "{broken"])
    url = page_url("message", conversation.pk, 1)
    page = staff.get(url).content.decode()
    assert "{\n  &quot;role&quot;: &quot;user&quot;,\n" in page
    assert f'href="{page_url("transcript", conversation.pk)}?at=1"' in page
    assert (
        "{broken" in staff.get(page_url("message", conversation.pk, 2)).content.decode()
    )


@pytest.mark.parametrize("position", [0, 3, 2**63, 10**30])
def test_a_message_that_is_not_there_is_404(make, staff, position) -> None:
    conversation = make([Message.user("a"), Message.user("b")])
    assert staff.get(page_url("message", conversation.pk, position)).status_code == 404


@pytest.mark.parametrize("pk", ["0", "999999", "x", "1_2F2"])
def test_a_conversation_that_is_not_there_is_404(make, staff, pk) -> None:
    make([Message.user("a")])
    assert staff.get(f"/admin/convmem/conversation/{pk}/transcript/").status_code == 404


# --- moving about ---


@pytest.fixture
def long(make):
    return make([Message.user(f"message number {n}.") for n in range(1, 176)])


def links(page: str) -> dict[str, str]:
    found = re.findall(r'<a href="(\?[^"]*)" rel="(\w+)">', page)
    return {rel: href for href, rel in found}


def shown_positions(page: str) -> list[int]:
    return [int(n) for n in re.findall(r'<article id="m(\d+)"', page)]


def test_the_newest_page_comes_first(long, staff) -> None:
    page = read(staff, long)
    assert shown_positions(page) == list(range(126, 176))
    assert links(page) == {"first": "?after=0", "prev": "?before=126"}
    assert "#126 to #175" in page


def test_links_lead_to_older_newer_first_and_newest(long, staff) -> None:
    page = read(staff, long, before=126)
    assert shown_positions(page) == list(range(76, 126))
    assert links(page) == {
        "first": "?after=0",
        "prev": "?before=76",
        "next": "?after=125",
        "last": "?",
    }
    assert shown_positions(read(staff, long, after=0)) == list(range(1, 51))
    assert links(read(staff, long, after=0)) == {"next": "?after=50", "last": "?"}


@pytest.mark.parametrize("at", ["1", "60", "#60", "175"])
def test_a_deep_link_leads_to_the_page_of_the_message(long, staff, at) -> None:
    url = page_url("transcript", long.pk)
    response = staff.get(url, {"at": at})
    assert response.status_code == 302
    place, _, fragment = response["Location"].partition("#")
    number = int(at.lstrip("#"))
    assert fragment == f"m{number}"
    assert number in shown_positions(staff.get(place).content.decode())


@pytest.mark.parametrize("name", ["before", "after", "at"])
@pytest.mark.parametrize("text", ["x", "-1", "1e3", "٣", "9" * 5000, "<script>"])
def test_a_position_that_is_no_number_is_named_and_ignored(
    long, staff, name, text
) -> None:
    page = read(staff, long, **{name: text})
    assert "is not the number of a message" in page
    assert "<script>" not in page
    assert shown_positions(page)[-1] == 175


def test_empty_conversations_and_pages_say_so(make, long, staff) -> None:
    assert "This conversation holds no messages." in read(staff, make([]))
    assert "No message lies on this page." in read(staff, long, before=1)


def test_number_of_queries_does_not_grow(
    make, staff, django_assert_num_queries, monkeypatch
) -> None:
    monkeypatch.setattr(ConversationAdmin, "transcript_page_size", 48)
    turn = [
        Message.user("?"),
        Message.assistant(tool_calls=(call("a"),)),
        Message.tool("a", "1"),
        Message.assistant("1"),
    ]
    for conversation in (make(turn * 60), make(turn * 2500)):
        middle = conversation.message_count // 2
        with django_assert_num_queries(4):  # session, user, conversation, page
            assert "#m" in read(staff, conversation)
        # and whether anything lies on the other side
        for query in ({"after": 0}, {"before": middle + 1}):
            with django_assert_num_queries(5):
                read(staff, conversation, **query)
        # and a partner beyond each end, however much each message holds
        with django_assert_num_queries(7):
            read(staff, conversation, after=middle + 2)


def test_hooks_change_the_page(make, staff, monkeypatch) -> None:
    conversation = make([Message.user("abcdef"), Message.assistant("secret")])
    monkeypatch.setattr(ConversationAdmin, "transcript_limits", Limits(text=3))
    monkeypatch.setattr(
        ConversationAdmin,
        "get_transcript_queryset",
        lambda self, request, found: found.messages.filter(role="user"),
    )
    page = read(staff, conversation)
    assert shown_positions(page) == [1]
    assert "abc</div>" in page


def test_real_transcripts_can_be_read(db, staff, shared) -> None:
    store, count = DatabaseStore(), 0
    # One conversation of each file: the files are what differs in shape.
    folder = shared / "conversations"
    firsts = {t.name.partition("[")[0]: t for t in reversed([*transcripts(folder)])}
    for transcript in firsts.values():
        newest = store.add(transcript.name, transcript.messages)[-1]
        found = Conversation.objects.get(conversation_id=transcript.name)
        page = read(staff, found)
        assert f'id="m{newest.position}"' in page
        for part in newest.parts:
            text = part.text if isinstance(part, TextPart) else ""
            first_line = text.split("\n")[0][:20_000]
            if first_line.isprintable() and newest.role != "tool":
                assert escape(first_line) in page
        count += 1
    assert count > 30
