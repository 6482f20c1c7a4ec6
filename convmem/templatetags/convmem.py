"""Filters that show what a model or a user wrote, exactly and harmlessly."""

from __future__ import annotations

import re
import unicodedata

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

register = template.Library()

# Characters that act on a reader without being seen: control characters (terminal
# colours), embeddings, overrides and isolates of direction (text that reads in another
# order than it is stored), and tags (invisible instructions to a model). Marks that
# ordinary Arabic or Hebrew text needs are not among them.
_UNSEEN = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff"
    "\U000e0000-\U000e007f"
)
_unseen = re.compile(f"([{_UNSEEN}])")
_unseen_or_edge = re.compile(rf"([{_UNSEEN}\t\n\r]|\A\s+|\s+\Z)")


def _badge(character: str) -> SafeString:
    name = unicodedata.name(character, "") or "control character"
    return format_html(
        '<span class="convmem-control" title="{}">{}</span>',
        name,
        f"U+{ord(character):04X}",
    )


def _shown(pieces: list[str]) -> SafeString:
    # re.split with one group: texts at even places, what was matched at odd ones.
    return format_html_join(
        "",
        "{}",
        (
            (_badges(piece) if place % 2 else piece,)
            for place, piece in enumerate(pieces)
        ),
    )


def _badges(characters: str) -> SafeString:
    return format_html_join("", "{}", ((_badge(one),) for one in characters))


@register.filter(is_safe=False)
def visible(value: object) -> SafeString:
    """Escape ``value`` as HTML and show each invisible character as its code point."""
    return _shown(_unseen.split(str(value)))


@register.filter(is_safe=False)
def exact(value: object) -> SafeString:
    """Like `visible` for an identifier, where outer spaces and line breaks count."""
    return _shown(_unseen_or_edge.split(str(value)))
