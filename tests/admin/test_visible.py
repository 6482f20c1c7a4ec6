"""What the filters do to text that a model or a user wrote."""

from __future__ import annotations

import pytest
from django.template import Context, Template
from hypothesis import given, settings
from hypothesis import strategies as st

from convmem.templatetags.convmem import exact, visible


def test_markup_becomes_text() -> None:
    assert visible('<b onclick="x">&') == "&lt;b onclick=&quot;x&quot;&gt;&amp;"


def test_markup_declared_safe_becomes_text_too() -> None:
    shown = Template("{% load convmem %}{{ text|safe|visible }}").render(
        Context({"text": "<script>"})
    )
    assert shown == "&lt;script&gt;"


@pytest.mark.parametrize(
    ("character", "code", "name"),
    [
        ("\u202e", "U+202E", "RIGHT-TO-LEFT OVERRIDE"),
        ("\u2066", "U+2066", "LEFT-TO-RIGHT ISOLATE"),
        ("\x1b", "U+001B", "control character"),
        ("\x00", "U+0000", "control character"),
        ("\u2028", "U+2028", "LINE SEPARATOR"),
        ("\ufeff", "U+FEFF", "ZERO WIDTH NO-BREAK SPACE"),
        ("\U000e0041", "U+E0041", "TAG LATIN CAPITAL LETTER A"),
    ],
)
def test_characters_that_act_unseen_are_named(character, code, name) -> None:
    badge = f'<span class="convmem-control" title="{name}">{code}</span>'
    assert visible(f"a{character}b") == f"a{badge}b"


@pytest.mark.parametrize(
    "text", ["a\tb\nc\r\n", "שלום", "नमस्ते\u200d", "👩\u200d🔬", "a  b"]
)
def test_ordinary_text_is_left_alone(text) -> None:
    assert visible(text) == text


def test_ids_that_differ_in_spaces_look_different() -> None:
    shown = [exact(text) for text in ("t", "t ", " t", "t\nt", "t t")]
    assert len(set(shown)) == 5
    assert shown[0] == "t"
    assert "U+0020" in shown[1]
    assert "U+000A" in shown[3]
    assert shown[4] == "t t"


@given(st.text())
@settings(max_examples=100, deadline=None)
def test_no_text_leaves_a_tag_or_an_unseen_character(text) -> None:
    for shown in (visible(text), exact(text)):
        without = shown.replace('<span class="convmem-control" title="', "").replace(
            "</span>", ""
        )
        bare = without.replace('">U+', "U+")
        assert not set(bare) & set("<>\"'\u202e\u2066\x1b\x00")
