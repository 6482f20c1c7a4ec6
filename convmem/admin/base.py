"""What the admin classes of this app share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest

M = TypeVar("M", bound=Model)

# ModelAdmin is generic for type checkers only.
if TYPE_CHECKING:

    class _ModelAdmin(admin.ModelAdmin[M]):
        pass

else:

    class _ModelAdmin(admin.ModelAdmin):
        def __class_getitem__(cls, model: Any) -> type:
            return cls


class ReadOnlyAdmin(_ModelAdmin[M]):
    """Rows that code writes: staff may look at them and, with the permission, delete
    them, but neither add nor change them by hand."""

    class Media:
        css = {"all": ("convmem/admin.css",)}

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False

    def has_view_content_permission(
        self, request: HttpRequest, obj: M | None = None
    ) -> bool:
        """Return whether the user may see what was said, not only that it was.

        Everyone who may view the object, unless a subclass says otherwise; asked for
        the transcript, for searching in content and for excerpts in lists.
        """
        return self.has_view_permission(request, obj)
