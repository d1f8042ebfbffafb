"""`manage.py create_join_token`: let a machine join as an engine host, before anybody can sign in to the console."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane.core.config import current
from control_plane.fleet.joining.join_tokens import create_token
from control_plane.fleet.joining.joining import NAME_FORM
from control_plane.identity.access.actor import SYSTEM


class Command(BaseCommand):
    help = "Let one machine join as an engine host, once. Prints what to add to its engine's command."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--host",
            default="",
            help="The only name under which the machine can join; it replaces an existing host of that name.",
        )
        parser.add_argument("--minutes", type=int, default=60, help="Minutes for which the token can be used.")

    def handle(self, *args: Any, **options: Any) -> None:
        host, minutes = options["host"], options["minutes"]
        if host and not re.fullmatch(NAME_FORM, host):
            raise CommandError(f'"{host}" is not a host name: use letters, digits, dots and dashes.')
        if not 0 < minutes <= 30 * 24 * 60:
            raise CommandError(f"--minutes is {minutes}. Send a number from 1 to 43200 (30 days).")
        _, text = create_token(actor=SYSTEM, host_name=host, lifetime=timedelta(minutes=minutes))
        self.stdout.write(f"--join {current().address} --token {text}")
