"""`manage.py approve_base_model --host gpu2`: serve the base model of a host beside the others."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane.core.errors import LorikeetError
from control_plane.fleet.base_models.actions import approve_base_model, describe_host
from control_plane.identity.access.actor import SYSTEM


class Command(BaseCommand):
    help = "Serve the base model of a host beside those that are served already."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", required=True, help="A host of this installation; its engine must run.")
        parser.add_argument(
            "--name",
            default="",
            help="Name that callers put into `model`; by default the engine's name for the base model.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            row = approve_base_model(actor=SYSTEM, description=describe_host(options["host"]), name=options["name"])
        except LorikeetError as error:
            raise CommandError(f"{error} {error.fix}") from error
        self.stdout.write(f"The base model {row.name} ({row.digest}) is served.")
