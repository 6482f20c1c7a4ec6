"""The API as a project mounts it, once plainly and once under a name of its own."""

from __future__ import annotations

from django.urls import include, path

nested = ([path("", include("convmem.urls"))], "nested")

urlpatterns = [
    path("api/v1/", include("convmem.urls")),
    path("nested/", include(nested)),
    path("<slug:tenant>/chat/", include("convmem.urls", namespace="tenants")),
]
