from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from convmem.conf import settings
from convmem.handlers import services
from convmem.kernel.services import install


class ConvmemConfig(AppConfig):
    """The app: its tables, its admin and its system checks."""

    name = "convmem"
    verbose_name = _("Conversation memory")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        import_module("convmem.checks")
        install(
            service=services.__getitem__,
            max_rounds=lambda: settings.max_rounds,
            max_message_bytes=lambda: settings.max_message_bytes,
        )
