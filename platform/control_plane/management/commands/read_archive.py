"""`manage.py read_archive`: list the archives of the ledger and the audit log, check their files, or print a month."""

from __future__ import annotations

import csv
import json
import tempfile
from argparse import ArgumentTypeError
from datetime import date, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane.adapters.artifacts.configured import file_store
from control_plane.billing.archives.models import ArchivePart
from control_plane.billing.archives.reading import parts, read_rows, verified
from control_plane.core.config import current


def month(text: str) -> date:
    try:
        return date.fromisoformat(f"{text}-01")
    except ValueError:
        raise ArgumentTypeError(f'"{text}" is not a month: write year and month, like 2026-05') from None


class Command(BaseCommand):
    help = "Without a month: list the archives. With one: print its rows as JSON lines, or as CSV."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("table", choices=["ledger", "audit"])
        parser.add_argument("month", nargs="?", type=month, help="like 2026-05")
        parser.add_argument("--tenant", help="only rows of the tenant with this short name")
        parser.add_argument("--csv", action="store_true", help="print CSV with a heading")
        parser.add_argument("--verify", action="store_true", help="compare the files with their digests; print no rows")

    def handle(self, *args: Any, **options: Any) -> None:
        chosen = parts(options["table"], options["month"])
        if options["month"] and not chosen:
            raise CommandError(f"{options['month']:%Y-%m} is not archived. Without a month, this lists the archives.")
        if options["verify"]:
            self._verify(chosen)
        elif options["month"] is None:
            for part in chosen:
                self.stdout.write(f"{part}: {part.rows} rows, {part.bytes} bytes, {file_store().address(part.name)}")
        else:
            self._print(options)

    def _verify(self, chosen: list[ArchivePart]) -> None:
        with tempfile.TemporaryDirectory(dir=current().var_dir) as folder:
            for part in chosen:
                try:
                    verified(part, file_store(), Path(folder))
                except OSError as error:
                    raise CommandError(f"{part}: {error}") from error
        self.stdout.write(f"{len(chosen)} files have the digests with which they were archived.")

    def _print(self, options: dict[str, Any]) -> None:
        writer = None
        for row in read_rows(options["table"], options["month"], options["tenant"]):
            plain = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
            if not options["csv"]:
                self.stdout.write(json.dumps(plain, ensure_ascii=False))
                continue
            if writer is None:
                writer = csv.DictWriter(self.stdout, fieldnames=list(plain))
                writer.writeheader()
            writer.writerow(plain)
