"""`manage.py rotate_secret key-pepper begin`: the steps by which a secret is replaced without a failed request."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from control_plane.core.config import SettingsError
from control_plane.core.secrets import rotation
from control_plane.core.secrets.keys import FOLLOW_S, KINDS, file_of
from control_plane.core.secrets.models import SecretRecord
from control_plane.core.secrets.rotation import Rotation, RotationError, State
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.audit import actions as audit
from control_plane.management.secret_uses import uses_of

STEPS = ("begin", "switch", "finish", "abort", "adopt")


class Command(BaseCommand):
    help = "Replace a secret of the installation step by step: docs/operations/secrets.md."
    requires_system_checks: list[str] = []  # it is what repairs a mismatch

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", choices=[*KINDS])
        parser.add_argument("step", nargs="?", choices=STEPS)
        parser.add_argument("--list", action="store_true", help="Show the state of all secrets; the default.")
        parser.add_argument(
            "--discard", action="store_true", help="Go on although something needs the old value; it becomes invalid."
        )

    def handle(self, *args: Any, name: str | None, step: str | None, discard: bool, **options: Any) -> None:
        try:
            if name and step:
                self._take(name, step, discard)
            for each in [name] if name else [*KINDS]:
                self._show(each)
        except (RotationError, SettingsError) as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(f"{error.filename or ''} cannot be written: {error.strerror}.") from error

    def _take(self, name: str, step: str, discard: bool) -> None:
        before, uses = rotation.rotation_of(name), uses_of(name)
        if step == "switch" and before.state is State.BEGUN:
            uses.renew()  # hosts learn to trust the next authority
            self._require(uses.unprepared(before.new_id), discard)
        elif step == "finish" and before.state is State.SWITCHED:
            uses.renew()
            self._require(uses.remaining(before.old_id), discard)
        elif step == "abort" and before.state is State.BEGUN:
            uses.renew()
            self._require(uses.remaining(before.new_id), discard)
        if step in ("switch", "abort"):
            rotation.settle(name)
        with transaction.atomic():
            after = self._steps(name, step, discard)
            row = SecretRecord.objects.get(name=name)
            audit.record(SYSTEM, f"secret.{step}", row, tenant=None, ids=after.ids)
        if step != "adopt":
            if file_of(name) is not None:
                time.sleep(2 * FOLLOW_S)  # until every process uses the order of today
            uses.renew()

    @staticmethod
    def _steps(name: str, step: str, discard: bool) -> Rotation:
        return rotation.finish(name, discard=discard) if step == "finish" else getattr(rotation, step)(name)

    @staticmethod
    def _require(sentences: list[str], discard: bool) -> None:
        if sentences and not discard:
            raise RotationError(
                f"Not yet: {'; '.join(sentences)}. Run this step again later, or with --discard to make them invalid."
            )

    def _show(self, name: str) -> None:
        present = rotation.rotation_of(name)
        if not present.ids:
            self.stdout.write(f"{name}: not set")
            return
        since = present.switched_at or present.begun_at
        state = f"{present.state} since {since:%Y-%m-%d %H:%M} UTC" if since else str(present.state)
        self.stdout.write(f"{name}: {state}, {present.source}, in use {present.ids[0]}")
        for other in present.ids[1:]:
            remaining = uses_of(name).remaining(other)
            self.stdout.write(f"  accepted too: {other}{', for ' + '; '.join(remaining) if remaining else ''}")
        if present.state is State.BEGUN and (waiting := uses_of(name).unprepared(present.new_id)):
            self.stdout.write(f"  do not switch yet: {'; '.join(waiting)}")
        if present.state is State.MISMATCH:
            self.stdout.write("  not of this database: manage.py check --database default says more")
