"""The native API: ``path("api/v1/", include("convmem.urls"))``."""

from __future__ import annotations

from convmem.api.urls import urlpatterns

__all__ = ["app_name", "urlpatterns"]

app_name = "convmem"
