from __future__ import annotations

import time
from argparse import ArgumentParser
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TextIO, cast

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from rich.console import Console

from convmem.exceptions import ConvmemError
from project.demo import Demo
from project.demo_output import PromiseBroken, Stage
from project.local_model import LocalModelMissing, local_model
from project.seeds import owner_of_login
from project.services import is_offline, label, running_model

LOGIN = "admin"


class Command(BaseCommand):
    """Show the main job and check it; exit with 1 when a step fails."""

    help = "Show conversations that remember, step by step, and check each step."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--transcript",
            type=Path,
            help="import this chat instead (JSON or JSON Lines, OpenAI's shape)",
        )
        parser.add_argument(
            "--index", type=int, default=0, help="which chat of the file (from 0)"
        )
        parser.add_argument(
            "--local",
            action="store_true",
            help="use a small real model on this machine (see make demo-local)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        began = time.monotonic()
        console = Console(file=cast(TextIO, self.stdout))
        settings.VAR_DIR.mkdir(parents=True, exist_ok=True)
        call_command("migrate", interactive=False, verbosity=0)
        local = options["local"]
        model: AbstractContextManager[dict[str, Any]] = (
            local_model() if local else running_model()
        )
        try:
            with model as service:
                console.print(f"[bold]convmem[/]  model: {label(service)}")
                database = settings.DATABASES["default"]["NAME"]
                console.print(f"         database: {database}", highlight=False)
                demo = Demo(
                    Stage(console),
                    login=LOGIN,
                    owner=owner_of_login(LOGIN),
                    strict=is_offline(service),
                )
                if local:
                    demo.run_small()
                else:
                    demo.run(options["transcript"], options["index"])
        except (PromiseBroken, ConvmemError, LocalModelMissing) as error:
            raise CommandError(f"The demo failed: {error}") from error
        _say_what_next(console, time.monotonic() - began)


def _say_what_next(console: Console, seconds: float) -> None:
    console.print(f"\n[bold green]Every step held[/], in {seconds:.1f} s. Next:")
    console.print(
        "  make serve    the same conversations in a browser:\n"
        "                http://127.0.0.1:8000/        start page\n"
        "                http://127.0.0.1:8000/admin/  log in as admin / admin\n"
        "                http://127.0.0.1:8000/api/v1/conversations/",
        highlight=False,
    )
