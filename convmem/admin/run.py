"""Runs: what was asked of an agent, and how it ended."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from convmem.admin.base import ReadOnlyAdmin
from convmem.admin.filters import AgentFilter
from convmem.admin.jsontext import pretty
from convmem.models import Conversation, Run
from convmem.owners import Owner
from convmem.templatetags.convmem import exact, visible

CONTENT_FIELDS = ("shown_input", "shown_output")


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin[Run]):
    """Runs to look at; the pipeline is what writes them."""

    list_display = (
        "created_at",
        "agent_name",
        "shown_status",
        "shown_conversation",
        "owner",
        "model",
        "tokens",
        "duration",
        "error_code",
    )
    list_filter = ("status", AgentFilter, "created_at")
    date_hierarchy = "created_at"
    list_per_page = 50
    show_full_result_count = False
    search_help_text = _("Run id, conversation id, owner id, agent or error code")
    search_fields = ("conversation_id", "owner_id", "agent_name", "error_code")
    fieldsets = (
        (
            None,
            {
                "fields": (
                    "id",
                    "agent_name",
                    "shown_status",
                    "shown_conversation",
                    "transcript_link",
                    "owner",
                )
            },
        ),
        (_("What was said"), {"fields": CONTENT_FIELDS}),
        (_("Error"), {"fields": ("error_code", "shown_error")}),
        (
            _("Usage"),
            {
                "fields": (
                    "model",
                    "rounds",
                    "input_tokens",
                    "output_tokens",
                    "total_tokens",
                    "cached_tokens",
                    "reasoning_tokens",
                )
            },
        ),
        (
            _("Time"),
            {"fields": ("created_at", "started_at", "finished_at", "duration")},
        ),
    )

    # --- columns and fields ---

    @admin.display(description=_("status"), ordering="status")
    def shown_status(self, run: Run) -> SafeString:
        return format_html(
            '<span class="convmem-badge convmem-badge-{}">{}</span>',
            run.status,
            run.get_status_display(),
        )

    @admin.display(description=_("conversation id"), ordering="conversation_id")
    def shown_conversation(self, run: Run) -> SafeString:
        return format_html("<bdi>{}</bdi>", exact(run.conversation_id))

    @admin.display(description=_("conversation"))
    def transcript_link(self, run: Run) -> SafeString:
        """Link to the transcript, when the conversation (still) exists."""
        owner = Owner(name=run.owner_name, id=run.owner_id)
        rows = Conversation.objects.for_owner(owner)
        found = rows.exactly(conversation_id=run.conversation_id).first()
        if found is None:
            return self.get_empty_value_display()
        url = reverse(
            "admin:convmem_conversation_transcript",
            args=(found.pk,),
            current_app=self.admin_site.name,
        )
        return format_html('<a href="{}">{}</a>', url, _("Transcript"))

    @admin.display(description=_("owner"), ordering="owner_name")
    def owner(self, run: Run) -> SafeString:
        if not run.owner_name:
            return self.get_empty_value_display()
        kind, key = exact(run.owner_name), exact(run.owner_id)
        return format_html("<bdi>{}:{}</bdi>", kind, key)

    @admin.display(description=_("tokens in / out"), ordering="total_tokens")
    def tokens(self, run: Run) -> str:
        """Return both counts; what is unknown is shown as a question mark."""
        counts = (run.input_tokens, run.output_tokens)
        if counts == (None, None):
            return self.get_empty_value_display()
        return " / ".join("?" if count is None else str(count) for count in counts)

    @admin.display(description=_("seconds"))
    def duration(self, run: Run) -> str:
        if run.started_at is None or run.finished_at is None:
            return self.get_empty_value_display()
        return f"{(run.finished_at - run.started_at).total_seconds():.1f}"

    @admin.display(description=_("error message"))
    def shown_error(self, run: Run) -> SafeString:
        return self.get_text_block(run.error_message)

    @admin.display(description=_("input"))
    def shown_input(self, run: Run) -> SafeString:
        return self.get_text_block(pretty(run.input).text)

    @admin.display(description=_("output"))
    def shown_output(self, run: Run) -> SafeString:
        return self.get_text_block(pretty(run.output).text)

    def get_text_block(self, text: str) -> SafeString:
        """Return a long text as it is shown in a field."""
        if not text:
            return self.get_empty_value_display()
        block = '<pre class="convmem-json" dir="auto">{}</pre>'
        return format_html(block, visible(text))

    # --- who sees what ---

    def get_fieldsets(self, request: HttpRequest, obj: Run | None = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)
        if self.has_view_content_permission(request, obj):
            return fieldsets
        return [one for one in fieldsets if one[1]["fields"] != CONTENT_FIELDS]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        """Leave the long texts where they are when many runs are listed."""
        rows = super().get_queryset(request)
        match = request.resolver_match
        if match is not None and (match.url_name or "").endswith("_changelist"):
            return rows.defer("input", "output", "error_message")
        return rows

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Run], search_term: str
    ) -> tuple[QuerySet[Run], bool]:
        """A run's whole id finds that run; other words as usual."""
        try:
            return queryset.filter(pk=uuid.UUID(search_term.strip())), False
        except ValueError:
            return super().get_search_results(request, queryset, search_term)
