from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from project.offline_model import OfflineModel


class Command(BaseCommand):
    """Serve the offline model until interrupted."""

    help = "Serve the offline model, an OpenAI-compatible endpoint, on loopback."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=int, default=8765, help="0: a free one")
        parser.add_argument(
            "--delay",
            type=float,
            default=0.03,
            help="seconds between the pieces of a stream",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            model = OfflineModel(port=options["port"], delay=options["delay"])
        except OSError as error:
            raise CommandError(
                f"Port {options['port']} cannot be used ({error.strerror}); "
                "name another with --port."
            ) from error
        self.stdout.write(f"Offline model at {model.base_url} (Ctrl-C stops it).")
        self.stdout.flush()
        try:
            model.serve_forever()
        except KeyboardInterrupt:
            self.stdout.write("")
        finally:
            model.stop()
