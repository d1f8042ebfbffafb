"""`manage.py check_rollups`: compare the rollups with the ledger; with --rebuild, make them anew first."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane.billing.usage.aggregation import aggregate
from control_plane.billing.usage.rollup_check import ArchivedLedgerError, differences, forget_rollups


class Command(BaseCommand):
    help = "Compare the sums of the ledger with the rollups, by tenant and day."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--rebuild", action="store_true", help="First rebuild the rollups from the ledger.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["rebuild"]:
            try:
                forget_rollups()
            except ArchivedLedgerError as error:
                raise CommandError(f"{error} Restore a back-up, or correct the days that differ by hand.") from error
        added = aggregate()
        wrong = differences()
        for line in wrong[:20]:
            self.stdout.write(line)
        if wrong:
            raise CommandError(f"{len(wrong)} sums differ from the ledger. Run this with --rebuild.")
        self.stdout.write(f"The rollups match the ledger ({added} rows were added to them now).")
