from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig


class ProjectConfig(AppConfig):
    name = "project"
    verbose_name = "Demo"

    def ready(self) -> None:
        import_module("project.agents")
