"""Filters of the admin's lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from convmem.models import StoredMessage

#: As `convmem.messages.encode` writes it; inside a JSON string its quotes would be
#: escaped, so that text which merely quotes it is not found.
TOOL_ERROR = '"is_error":true'


class ValuesFilter(admin.SimpleListFilter):
    """By one text column, of the values that occur."""

    field: str
    #: What a row without a value is called.
    empty_name: Any = _("none")
    #: More values than this are not offered (the search box finds them).
    limit = 20

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, Any]]:
        rows = model_admin.model._default_manager.order_by(self.field)
        values = rows.values_list(self.field, flat=True).distinct()[: self.limit]
        return [(value, value or self.empty_name) for value in values]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return queryset if value is None else queryset.filter(**{self.field: value})


class OwnerKindFilter(ValuesFilter):
    """Conversations by the kind of their owner."""

    title = _("owner kind")
    parameter_name = "owner_kind"
    field = "owner_name"
    empty_name = _("nobody")


class AgentFilter(ValuesFilter):
    """Runs by agent."""

    title = _("agent")
    parameter_name = "agent"
    field = "agent_name"


class TroubleFilter(admin.SimpleListFilter):
    """Conversations with a message that did not come out well."""

    title = _("trouble")
    parameter_name = "trouble"
    conditions: dict[str, tuple[Any, Callable[[], Q]]] = {
        "incomplete": (_("Incomplete messages"), lambda: Q(status="incomplete")),
        "failed": (_("Failed turns"), lambda: Q(status="failed")),
        "superseded": (_("Replaced replies"), lambda: Q(status="superseded")),
        "tool": (
            _("Failed tool calls"),
            lambda: Q(role="tool", body__contains=TOOL_ERROR),
        ),
    }

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, Any]]:
        return [
            ("any", _("Any")),
            *((value, name) for value, (name, _condition) in self.conditions.items()),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.value()
        if chosen == "any":
            condition = Q()
            for _name, make in self.conditions.values():
                condition |= make()
        elif chosen in self.conditions:
            condition = self.conditions[chosen][1]()
        else:
            return queryset
        found = StoredMessage.objects.filter(condition, conversation=OuterRef("pk"))
        return queryset.filter(Exists(found))
