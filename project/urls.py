from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

from project.views import start

urlpatterns = [
    path("", start, name="start"),
    path("admin/", admin.site.urls),
    path("api/v1/", include("convmem.urls")),
]
