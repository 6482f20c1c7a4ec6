from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from convmem.agent import get_agent
from convmem.exceptions import ConvmemError
from project.seeds import owner_of_login


class Command(BaseCommand):
    """Ask an agent one thing in a conversation and print the answer."""

    help = "Ask the demo's assistant in a conversation: manage.py ask my-chat 'Hello'"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("conversation_id")
        parser.add_argument("text")
        parser.add_argument("--agent", default="assistant")
        parser.add_argument(
            "--user", default="admin", help="whose conversation it is (a login)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            result = get_agent(options["agent"]).run(
                options["text"],
                conversation_id=options["conversation_id"],
                owner=owner_of_login(options["user"]),
            )
        except ConvmemError as error:
            raise CommandError(f"{error.code}: {error}") from error
        self.stdout.write(result.text)
