"""Conversation ids in addresses: any id survives the way there and back."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convmem.api.paths import decode_id, encode_id
from convmem.exceptions import InvalidConversationId
from convmem.owners import Owner
from tests.api.conftest import API, conversation, messages, post, problem_of, user_says

IDS = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=255
)
ODD_IDS = [
    "a/b",
    "/lead",
    "trail/",
    "a//b",
    "a/messages",
    "two words",
    " ",
    "t ",
    "100%",
    "a%2Fb",
    "?q=1#f",
    "ünï-日本-🎈",
    "line\nbreak",
    "~tilde",
    ".",
    "..",
    "messages",
    "a+b@c:d",
    "x" * 255,
]


@given(IDS)
@settings(max_examples=100, deadline=None)
def test_the_written_form_of_any_id_reads_back_exactly(conversation_id: str) -> None:
    written = encode_id(conversation_id)
    assert decode_id(written) == conversation_id
    assert re.fullmatch(r"[A-Za-z0-9._:@+~ -]+", written)
    assert written not in {".", ".."}


def test_two_ids_never_share_a_written_form() -> None:
    assert encode_id("YQ") == "YQ"
    assert encode_id("~YQ") != "~YQ"
    assert decode_id("~YQ") == "a"


@pytest.mark.parametrize("written", ["~", "~*", "~a", "~_w", "~YQ/messages"])
def test_a_tilde_with_no_id_behind_it_is_refused(written: str) -> None:
    with pytest.raises(InvalidConversationId):
        decode_id(written)


@pytest.mark.parametrize("conversation_id", ODD_IDS)
def test_a_link_leads_to_its_conversation(api: Any, conversation_id: str) -> None:
    where = f"{API}conversations/{encode_id(conversation_id)}/messages/"
    assert post(api, where, user_says("hello")).status_code == 201

    (listed,) = api.get(f"{API}conversations/").json()["results"]
    assert listed["conversation_id"] == conversation_id
    assert api.get(listed["url"]).json() == listed
    (message,) = api.get(listed["messages_url"]).json()["results"]
    assert message["content"] == "hello"


@pytest.mark.parametrize(
    "conversation_id", [i for i in ODD_IDS if i not in {"a/messages", "~tilde"}]
)
def test_a_percent_encoded_id_is_understood(api: Any, conversation_id: str) -> None:
    assert post(api, messages(conversation_id), user_says("hi")).status_code == 201
    found = api.get(conversation(conversation_id)).json()
    assert found["conversation_id"] == conversation_id


def test_an_id_of_256_characters_is_refused(api: Any) -> None:
    body = problem_of(api.get(conversation("x" * 256)), 400, "invalid_conversation_id")
    assert "255" in body["detail"]
    assert "256" in body["detail"]


@pytest.mark.parametrize("conversation_id", ["a\x00b", "~not base64"])
def test_an_id_that_cannot_exist_is_refused(api: Any, conversation_id: str) -> None:
    problem_of(api.get(messages(conversation_id)), 400, "invalid_conversation_id")


def test_bytes_that_are_no_text_name_no_conversation(api: Any) -> None:
    response = api.get(f"{API}conversations/%FF%FE/")
    problem_of(response, 404, "conversation_not_found")


def test_links_keep_the_arguments_of_the_place(api: Any, settings: Any) -> None:
    def tenant(request: Any) -> Owner:
        return Owner(name="tenant", id=request.resolver_match.kwargs["tenant"])

    settings.CONVMEM = {"OWNER": tenant}
    post(api, "/acme/chat/conversations/a%20b/messages/", user_says("hi"))
    (listed,) = api.get("/acme/chat/conversations/").json()["results"]
    assert urlsplit(listed["url"]).path == "/acme/chat/conversations/a%20b/"
    assert api.get(listed["messages_url"]).status_code == 200
    assert api.get("/other/chat/conversations/").json()["results"] == []


def test_links_follow_the_place_where_the_api_is_mounted(api: Any) -> None:
    post(api, "/nested/conversations/c/messages/", user_says("hi"))
    (listed,) = api.get("/nested/conversations/").json()["results"]
    assert urlsplit(listed["url"]).path == "/nested/conversations/c/"
