from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import uvicorn
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from project.seeds import owner_of_login, seed
from project.services import label, running_model

LOGIN = PASSWORD = "admin"  # noqa: S105 - printed, and only in the demo
HOST = "127.0.0.1"
API = "/api/v1/conversations/"


class Command(BaseCommand):
    """Serve the demo site on loopback with demo data and a login."""

    help = "Run the demo site (ASGI) with demo data, a login and the offline model."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument(
            "--delay",
            type=float,
            default=0.03,
            help="seconds between the pieces of the offline model's streams",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if not settings.DEBUG:
            raise CommandError(
                "serve_demo makes a login with a known password; "
                "it runs with DEBUG only."
            )
        Path(settings.VAR_DIR).mkdir(parents=True, exist_ok=True)
        call_command("migrate", interactive=False, verbosity=0)
        login = make_login()
        stored = seed()
        with running_model(delay=options["delay"]) as service:
            self._welcome(options["port"], login, label(service), stored)
            uvicorn.run(
                "project.asgi:application",
                host=HOST,
                port=options["port"],
                lifespan="off",
                log_level="info",
                timeout_graceful_shutdown=3,
            )

    def _welcome(self, port: int, login: str, model: str, stored: int) -> None:
        address = f"http://{HOST}:{port}"
        self.stdout.write(
            f"convmem demo\n"
            f"  start page  {address}/\n"
            f"  admin       {address}/admin/  ({login})\n"
            f"  API         {address}{API}\n"
            f"  model       {model}\n"
            f"  demo data   {stored} conversations added\n"
            f"Ctrl-C stops it."
        )
        self.stdout.flush()


def make_login() -> str:
    """Make the demo's administrator when it is missing; return how to log in.

    A password that somebody has set is left as it is.
    """
    owner_of_login(LOGIN)
    user = get_user_model()._default_manager.get_by_natural_key(LOGIN)
    if user.has_usable_password() and not user.check_password(PASSWORD):
        return f"{LOGIN}, with the password that you have set"
    user.is_staff = user.is_superuser = True
    user.set_password(PASSWORD)
    user.save()
    return f"log in as {LOGIN} / {PASSWORD}"
