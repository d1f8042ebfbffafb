"""`manage.py set_base_model --host gpu1`: serve only the base model that a host has been started with."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane.core.errors import LorikeetError
from control_plane.fleet.base_models.actions import describe_host, set_base_model
from control_plane.identity.access.actor import SYSTEM


class Command(BaseCommand):
    help = (
        "Serve the base model of a host from now on, and no other. Hosts with another one are not used until they are "
        "started with it, and adapters of another one not until it is served again. approve_base_model adds one."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", required=True, help="A name in LORIKEET_ENGINE_HOSTS; the engine must run.")
        parser.add_argument(
            "--keep-adapters",
            action="store_true",
            help="Keep the adapters of the replaced base model: this one is the same model, saved anew.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            row = set_base_model(
                actor=SYSTEM, description=describe_host(options["host"]), keep_adapters=options["keep_adapters"]
            )
        except LorikeetError as error:
            raise CommandError(f"{error} {error.fix}") from error
        self.stdout.write(f"The base model is {row.name} ({row.digest}).")
