"""The list of conversations and the page of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Substr
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst, smart_split, unescape_string_literal
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from convmem.admin.filters import OwnerKindFilter, TroubleFilter
from convmem.admin.jsontext import one_line
from convmem.admin.transcript import TranscriptMixin
from convmem.models import Conversation, StoredMessage
from convmem.templatetags.convmem import exact, visible


class ConversationList(ChangeList):
    """A row leads to what was said; the page of its facts is one step from there."""

    model_admin: ConversationAdmin

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().__init__(request, *args, **kwargs)
        self.leads_to_transcript = (
            not self.is_popup and self.model_admin.has_view_content_permission(request)
        )

    def url_for_result(self, result: Any) -> str:
        if not self.leads_to_transcript:
            return super().url_for_result(result)
        return self.model_admin.get_transcript_url(result)


@admin.register(Conversation)
class ConversationAdmin(TranscriptMixin):
    """Conversations to find, read and delete; stores are what writes them."""

    change_form_template = "admin/convmem/conversation/change_form.html"
    list_display = (
        "shown_id",
        "opening",
        "owner",
        "message_count",
        "last_message_at",
        "created_at",
    )
    list_filter = (
        OwnerKindFilter,
        TroubleFilter,
        "last_message_at",
        "created_at",
    )
    date_hierarchy = "last_message_at"
    list_per_page = 50
    # Counting every row beside the rows found costs a scan of the table.
    show_full_result_count = False
    search_fields = ("conversation_id", "owner_id")
    search_help_text = _("Words of the messages, conversation id, owner id or kind:id")
    fieldsets = (
        (None, {"fields": ("shown_id", "owner", "message_count")}),
        (_("Time"), {"fields": ("created_at", "last_message_at")}),
        (_("Storage"), {"fields": ("namespace", "last_position", "key")}),
    )

    # --- list ---

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return ConversationList

    def get_list_display(self, request: HttpRequest) -> Any:
        columns = super().get_list_display(request)
        if self.has_view_content_permission(request):
            return columns
        return [column for column in columns if column != "opening"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Conversation]:
        """Add the beginning of the first user message, one index look-up a row shown
        (a count leaves it out)."""
        first = (
            StoredMessage.objects.filter(conversation=OuterRef("pk"), role="user")
            .order_by("position")
            .values(start=Substr("text", 1, 200))[:1]
        )
        return super().get_queryset(request).annotate(opening_text=Subquery(first))

    @admin.display(description=_("conversation id"), ordering="conversation_id")
    def shown_id(self, conversation: Conversation) -> SafeString:
        return format_html("<bdi>{}</bdi>", exact(conversation.conversation_id))

    @admin.display(description=_("first words"), empty_value="")
    def opening(self, conversation: Any) -> SafeString | None:
        text = one_line(conversation.opening_text or "", 80)
        return format_html("<bdi>{}</bdi>", visible(text)) if text else None

    @admin.display(description=_("owner"), ordering="owner_name")
    def owner(self, conversation: Conversation) -> SafeString:
        if not conversation.owner_name:
            return self.get_empty_value_display()
        kind, key = conversation.owner_name, conversation.owner_id
        return format_html("<bdi>{}:{}</bdi>", exact(kind), exact(key))

    # --- search ---

    def get_search_results(
        self,
        request: HttpRequest,
        queryset: QuerySet[Conversation],
        search_term: str,
    ) -> tuple[QuerySet[Conversation], bool]:
        """Each word (or "quoted words") must be in the id, the owner or a message."""
        for word in search_words(search_term):
            condition = self.get_id_search(word)
            if self.has_view_content_permission(request):
                condition |= self.get_content_search(word)
            queryset = queryset.filter(condition)
        return queryset, False

    def get_id_search(self, word: str) -> Q:
        """Return the condition that ``word`` names a conversation or its owner."""
        condition = Q()
        for field in self.search_fields:
            condition |= Q(**{f"{field}__icontains": word})
        kind, colon, key = word.partition(":")
        if colon and kind:
            condition |= Q(owner_name=kind, owner_id=key)
        return condition

    def get_content_search(self, word: str) -> Q:
        """Return the condition that a message contains ``word``: a subquery, since a
        join would give a row for each message found."""
        found = StoredMessage.objects.filter(
            conversation=OuterRef("pk"), text__icontains=word
        )
        return Q(Exists(found))

    # --- deleting ---

    def get_deleted_objects(
        self, objs: QuerySet[Conversation] | Sequence[Conversation], request: Any
    ) -> tuple[list[Any], dict[str, int], set[str], list[Any]]:
        """Name the conversations, and count what goes with them: to list ten thousand
        messages would read them all and help nobody."""
        chosen = list(objs)
        listed: list[Any] = [self._deleted_name(one) for one in chosen]
        counts: dict[str, int] = {str(self.opts.verbose_name_plural): len(chosen)}
        for name, count in self._cascades(chosen):
            counts[name] = counts.get(name, 0) + count
        perms_needed = {
            str(self.opts.verbose_name)
            for one in chosen
            if not self.has_delete_permission(request, one)
        }
        return listed, counts, perms_needed, []

    def _deleted_name(self, conversation: Conversation) -> SafeString:
        count = conversation.message_count
        return format_html(
            "{}: {} ({})",
            capfirst(str(self.opts.verbose_name)),
            exact(conversation.conversation_id),
            ngettext("%(count)d message", "%(count)d messages", count)
            % {"count": count},
        )

    def _cascades(self, chosen: Sequence[Conversation]) -> Iterator[tuple[str, int]]:
        """Yield the name and number of the rows that go with the conversations."""
        for relation in self.opts.related_objects:
            model = relation.related_model
            rows = model._base_manager.filter(
                **{f"{relation.field.name}__in": [one.pk for one in chosen]}
            )
            yield str(model._meta.verbose_name_plural), rows.count()


def search_words(text: str) -> Iterator[str]:
    """Yield the words of a search, a quoted phrase as one."""
    for word in smart_split(text):
        if word[0] in "\"'" and word[0] == word[-1] and len(word) > 1:
            word = unescape_string_literal(word)
        if word:
            yield word
