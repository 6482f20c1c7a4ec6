"""What the transcript shows of each message, ready for templates.

Everything here is plain text: templates escape it with the `visible` filter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from convmem.admin.attachments import Attachment, MediaPart, attachment, safe_link
from convmem.admin.jsontext import JsonText, one_line, pretty, pretty_value
from convmem.admin.pages import Page
from convmem.admin.pairing import Line, Place
from convmem.messages import (
    AudioPart,
    FilePart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
    Usage,
    VideoPart,
)
from convmem.models import StoredMessage

ROLE_NAMES: dict[str, str | Promise] = {
    "system": _("System"),
    "developer": _("Developer"),
    "user": _("User"),
    "assistant": _("Assistant"),
    "tool": _("Tool result"),
}
MEDIA_NAMES: dict[type[Any], str | Promise] = {
    ImagePart: _("Image"),
    AudioPart: _("Audio"),
    VideoPart: _("Video"),
    FilePart: _("File"),
}
STATUS_NAMES: dict[str, str | Promise] = {
    "incomplete": _("incomplete"),
    "failed": _("failed"),
    "corrupt": _("corrupt"),
    "superseded": _("superseded"),
}


@dataclass(frozen=True)
class Limits:
    """How much of one text a page shows; None shows all."""

    text: int | None = 20_000
    raw: int | None = 16_000


@dataclass(frozen=True)
class Excerpt:
    """A text, perhaps cut: ``cut`` characters are left out at its end."""

    text: str
    cut: int = 0

    @classmethod
    def of(cls, text: str, limit: int | None) -> Excerpt:
        if limit is None or len(text) <= limit:
            return cls(text)
        return cls(text[:limit], len(text) - limit)


@dataclass(frozen=True)
class PartView:
    """One content part. ``kind`` names how it is drawn: text, json, refusal,
    reasoning, media or opaque; ``index`` is its place in the message."""

    kind: str
    index: int
    content: Excerpt = Excerpt("")
    label: str | Promise = ""
    detail: tuple[str, ...] = ()
    link: str | None = None
    attachment: Attachment | None = None


@dataclass(frozen=True)
class CallView:
    """A tool call with its result. ``result_on_page`` is False when the result is
    shown here but stands on another page; ``unknown`` when none was found, though the
    turn goes on further than was read."""

    call: ToolCall
    arguments: JsonText
    content: Excerpt
    preview: str
    position: int
    result: Entry | None = None
    result_on_page: bool = True
    unknown: bool = False


@dataclass(frozen=True)
class Entry:
    """One message as the page shows it. ``message`` is None for a row that cannot be
    read; ``raw`` is its stored JSON."""

    row: StoredMessage
    message: Message | None
    parts: tuple[PartView, ...] = ()
    calls: tuple[CallView, ...] = ()
    badges: tuple[tuple[str, str | Promise], ...] = ()
    raw: Excerpt = Excerpt("")
    metadata: str = ""
    preview: str = ""
    answers: Place | None = None
    answers_unknown: bool = False

    @property
    def position(self) -> int:
        return self.row.position

    @property
    def role(self) -> str:
        return self.row.role

    @property
    def role_name(self) -> str | Promise:
        return ROLE_NAMES.get(self.role, self.role)

    @property
    def is_error(self) -> bool:
        return self.message is not None and self.message.is_error

    @property
    def usage(self) -> Usage | None:
        return self.message.usage if self.message else None


class EntryBuilder:
    """Makes the entries of one page: ``entry_class`` and the ``build_...`` methods are
    there to be overridden."""

    entry_class = Entry

    def __init__(self, page: Page, limits: Limits | None = None) -> None:
        self.page = page
        self.limits = limits or Limits()
        self.on_page = {line.position for line in page.lines}

    def entries(self) -> list[Entry]:
        """Return the entries oldest first. A result stands inside its call when both
        are on the page, and by itself otherwise."""
        return [
            self.build(line) for line in self.page.lines if not self._is_nested(line)
        ]

    def _is_nested(self, line: Line) -> bool:
        place = self.page.pairs.calls.get(line.position)
        return place is not None and place.line.position in self.on_page

    def build(self, line: Line) -> Entry:
        """Return the entry of one line, with its calls."""
        message, row = line.message, line.row
        parts = self.build_parts(message)
        return self.entry_class(
            row=row,
            message=message,
            parts=parts,
            calls=tuple(self.build_call(line, i) for i in range(len(line.calls))),
            badges=self.build_badges(line),
            raw=self.build_raw(row),
            metadata=pretty_value(message.metadata)
            if message and message.metadata
            else "",
            preview=self.build_preview(message),
            answers=self.page.pairs.calls.get(row.position),
            answers_unknown=self.page.open_start,
        )

    def build_preview(self, message: Message | None) -> str:
        """Return the first words of the message, a JSON text on one line."""
        text = message.text if message else ""
        if text.lstrip()[:1] in ("{", "["):
            text = pretty(text, indent=0).text
        return one_line(text)

    def build_raw(self, row: StoredMessage) -> Excerpt:
        """Return the stored JSON, indented; empty when it is too long to be sent
        unasked."""
        limit = self.limits.raw
        if limit is not None and len(row.body) > limit:
            return Excerpt("", len(row.body))
        return Excerpt(pretty(row.body).text)

    def build_badges(self, line: Line) -> tuple[tuple[str, str | Promise], ...]:
        """Return (css modifier, name) of each state that a reader must know."""
        message = line.message
        if message is None:
            return (("corrupt", STATUS_NAMES["corrupt"]),)
        badges: list[tuple[str, str | Promise]] = []
        for status in sorted({message.status, line.row.status} & set(STATUS_NAMES)):
            badges.append((status, STATUS_NAMES[status]))
        replaced = line.position in self.page.pairs.replaced
        if replaced and line.row.status != "superseded":
            badges.append(("superseded", STATUS_NAMES["superseded"]))
        if message.is_error:
            badges.append(("error", _("error")))
        if message.sanitized:
            badges.append(("sanitized", _("sanitized")))
        return tuple(badges)

    def build_call(self, line: Line, index: int) -> CallView:
        """Return one call of ``line`` with its result, if there is one."""
        call = line.calls[index]
        result = self.page.pairs.results.get((line.position, index))
        arguments = pretty(call.arguments) if call.arguments else JsonText("")
        return CallView(
            call=call,
            arguments=arguments,
            content=Excerpt.of(arguments.text, self.limits.text),
            preview=one_line(pretty(call.arguments, indent=0).text),
            position=line.position,
            result=self.build(result) if result else None,
            result_on_page=result is not None and result.position in self.on_page,
            unknown=result is None and self.page.open_end and self._is_last_turn(line),
        )

    def _is_last_turn(self, line: Line) -> bool:
        return not any(
            other.opens_turn and other.position > line.position
            for other in self.page.lines
        )

    def build_parts(self, message: Message | None) -> tuple[PartView, ...]:
        """Return the content parts; a tool result that is JSON is shown as such."""
        if message is None:
            return ()
        return tuple(
            self.build_part(part, index, message.role)
            for index, part in enumerate(message.parts)
            if part != TextPart(text="")
        )

    def build_part(self, part: Part, index: int, role: str) -> PartView:
        """Return one part as it is drawn."""
        if isinstance(part, TextPart | RefusalPart):
            return self._text(part, index, role)
        if isinstance(part, ReasoningPart):
            return self._reasoning(part, index)
        if isinstance(part, OpaquePart):
            return self._opaque(part, index)
        return self._media(part, index)

    def _text(self, part: TextPart | RefusalPart, index: int, role: str) -> PartView:
        kind = "refusal" if isinstance(part, RefusalPart) else "text"
        text = part.text
        if role == "tool" and text.lstrip()[:1] in ("{", "["):
            shown = pretty(text)
            kind, text = ("json", shown.text) if shown.valid else (kind, text)
        return PartView(kind, index, Excerpt.of(text, self.limits.text))

    def _reasoning(self, part: ReasoningPart, index: int) -> PartView:
        detail = [part.producer] if part.producer else []
        if part.signature:
            detail.append(str(_("signed")))
        if part.redacted:
            size = len(part.redacted)
            detail.append(str(_("encrypted, %(size)s characters") % {"size": size}))
        content = Excerpt.of(part.text, self.limits.text)
        return PartView("reasoning", index, content, detail=tuple(detail))

    def _opaque(self, part: OpaquePart, index: int) -> PartView:
        kind = part.data.get("type") if isinstance(part.data, dict) else None
        return PartView(
            "opaque",
            index,
            Excerpt.of(pretty_value(part.data), self.limits.text),
            label=str(kind or _("unknown type")),
        )

    def _media(self, part: MediaPart, index: int) -> PartView:
        found = attachment(part)
        named = (
            found.media_type if found else part.media_type,
            getattr(part, "filename", None),
            getattr(part, "format", None),
            part.file_id,
        )
        link = safe_link(part.url)
        unsafe = part.url if part.url and not link and found is None else ""
        return PartView(
            "media",
            index,
            Excerpt.of(unsafe, 500),
            label=MEDIA_NAMES[type(part)],
            detail=tuple(text for text in named if text),
            link=link,
            attachment=found,
        )
