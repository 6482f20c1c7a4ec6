"""A page that reads a conversation like a chat, for a ModelAdmin of conversations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _

from convmem.admin import attachments
from convmem.admin.base import ReadOnlyAdmin
from convmem.admin.entries import EntryBuilder, Limits
from convmem.admin.pages import Page, load_page
from convmem.admin.pairing import Line, pair
from convmem.messages import AudioPart, FilePart, ImagePart, VideoPart
from convmem.models import Conversation, StoredMessage

MAX_POSITION = 2**63 - 1


class TranscriptMixin(ReadOnlyAdmin[Conversation]):
    """Adds ``<pk>/transcript/``, ``<pk>/transcript/<position>/`` (one message whole)
    and ``<pk>/transcript/<position>/<part>/`` (its media)."""

    transcript_template = "admin/convmem/conversation/transcript.html"
    message_template = "admin/convmem/conversation/message.html"
    transcript_page_size = 50
    transcript_limits = Limits()
    entry_builder_class = EntryBuilder

    def get_urls(self) -> list[URLPattern]:
        """Return the pages of this mixin before Django's own, whose last is a
        catch-all."""
        base = "<path:object_id>/transcript/"
        views: dict[str, tuple[str, Callable[..., HttpResponse]]] = {
            base: ("transcript", self.transcript_view),
            f"{base}<int:position>/": ("message", self.message_view),
            f"{base}<int:position>/<int:index>/": ("media", self.media_view),
        }
        wrap = self.admin_site.admin_view
        prefix = f"{self.opts.app_label}_{self.opts.model_name}"
        own = [
            path(route, wrap(view), name=f"{prefix}_{name}")
            for route, (name, view) in views.items()
        ]
        return own + super().get_urls()

    # --- hooks ---

    def get_transcript_queryset(
        self, request: HttpRequest, conversation: Conversation
    ) -> QuerySet[StoredMessage]:
        """Return the rows that the transcript reads."""
        return conversation.messages.defer("text", "append_key", "append_digest")

    def get_transcript_page_size(self, request: HttpRequest) -> int:
        """Return the number of messages on a page."""
        return self.transcript_page_size

    def get_entry_builder(
        self, request: HttpRequest, page: Page, limits: Limits
    ) -> EntryBuilder:
        """Return what turns the lines of ``page`` into entries."""
        return self.entry_builder_class(page, limits)

    def get_transcript_context(
        self, request: HttpRequest, conversation: Conversation, page: Page
    ) -> dict[str, Any]:
        """Return the context of the transcript page."""
        builder = self.get_entry_builder(request, page, self.transcript_limits)
        return {
            **self.get_conversation_context(request, conversation),
            "title": _("Transcript"),
            "page": page,
            "entries": builder.entries(),
        }

    def get_conversation_context(
        self, request: HttpRequest, conversation: Conversation
    ) -> dict[str, Any]:
        """Return what every page of one conversation shows around its content."""
        return {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "original": conversation,
            "transcript_url": self.get_transcript_url(conversation),
            "media": self.media,
            "owner": f"{conversation.owner_name}:{conversation.owner_id}"
            if conversation.owner_name
            else "",
        }

    def get_transcript_url(self, conversation: Conversation) -> str:
        """Return the address of the conversation's transcript on this admin site."""
        return reverse(
            f"admin:{self.opts.app_label}_{self.opts.model_name}_transcript",
            args=(quote(conversation.pk),),
            current_app=self.admin_site.name,
        )

    # --- views ---

    def transcript_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show one page of the conversation: the newest, or the one that ``before``,
        ``after`` (positions, exclusive) or ``at`` (a position on it) names."""
        conversation = self._get_conversation(request, object_id)
        size = self.get_transcript_page_size(request)
        at = self._position(request, "at")
        if at is not None:
            before = min(at + size // 2, MAX_POSITION)
            return HttpResponseRedirect(f"{request.path}?before={before}#m{at}")
        page = load_page(
            self.get_transcript_queryset(request, conversation),
            size,
            before=self._position(request, "before"),
            after=self._position(request, "after"),
        )
        context = self.get_transcript_context(request, conversation, page)
        return self._render(request, self.transcript_template, context)

    def message_view(
        self, request: HttpRequest, object_id: str, position: int
    ) -> HttpResponse:
        """Show one message whole, with its row as stored."""
        conversation = self._get_conversation(request, object_id)
        line = self._get_line(conversation, position)
        everything = Limits(text=None, raw=None)
        page = Page(lines=(line,), pairs=pair([line]))
        builder = self.get_entry_builder(request, page, everything)
        context = {
            **self.get_conversation_context(request, conversation),
            "title": _("Message %(position)s") % {"position": position},
            "entry": builder.build(line),
            "row": line.row,
        }
        return self._render(request, self.message_template, context)

    def media_view(
        self, request: HttpRequest, object_id: str, position: int, index: int
    ) -> HttpResponse:
        """Serve the media inside one part as a picture or a download."""
        conversation = self._get_conversation(request, object_id)
        message = self._get_line(conversation, position).message
        part = message.parts[index] if message and index < len(message.parts) else None
        if not isinstance(part, ImagePart | AudioPart | VideoPart | FilePart):
            raise Http404(_("This part of the message holds no media."))
        found = attachments.attachment(part)
        content = found.decode() if found else None
        if found is None or content is None:
            raise Http404(_("This part of the message holds no media."))
        return attachments.response(found, content, f"message-{position}-{index}")

    # --- parts of views ---

    def _get_conversation(self, request: HttpRequest, object_id: str) -> Conversation:
        conversation = self.get_object(request, unquote(object_id))
        if conversation is None:
            raise Http404(_("There is no such conversation."))
        if not self.has_view_content_permission(request, conversation):
            raise PermissionDenied
        return conversation

    def _get_line(self, conversation: Conversation, position: int) -> Line:
        if position <= MAX_POSITION:
            row = conversation.messages.filter(position=position).first()
            if row is not None:
                return Line.read(row)
        raise Http404(_("This conversation has no such message."))

    def _position(self, request: HttpRequest, name: str) -> int | None:
        """Return the position that the query names, or None (and tell the user) when
        it is no number."""
        text = request.GET.get(name, "").strip().lstrip("#")
        if not text:
            return None
        if text.isascii() and text.isdigit() and len(text) < 20:
            return min(int(text), MAX_POSITION)
        warning = _("“%(text)s” is not the number of a message.")
        self.message_user(request, warning % {"text": text[:50]}, messages.WARNING)
        return None

    def _render(
        self, request: HttpRequest, template: str, context: dict[str, Any]
    ) -> TemplateResponse:
        # Named URLs in the template then lead to this admin site.
        request.current_app = self.admin_site.name
        return TemplateResponse(request, template, context)
