from __future__ import annotations

from django.contrib import admin
from django.urls import path

from project.views import start

urlpatterns = [
    path("", start, name="start"),
    path("admin/", admin.site.urls),
]
