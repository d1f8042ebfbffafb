"""Finds processes whose secrets are not those with which the database was made, before they refuse every key."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import django
from django.apps import apps
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import DatabaseError, InterfaceError, connections

from control_plane.core.config import SettingsError, current
from control_plane.core.errors import LorikeetError
from control_plane.core.secrets.keys import KINDS, SecretKind, file_of, key_ids
from control_plane.core.secrets.models import SecretRecord

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SecretProblem:
    """A secret that this process cannot use, with what to do."""

    name: str
    message: str
    fix: str


class SecretMismatchError(LorikeetError):
    def __init__(self, problem: SecretProblem) -> None:
        super().__init__("secret_mismatch", problem.message, problem.fix, status=503)


def problems() -> list[SecretProblem]:
    """Compare the required secrets with those that the database remembers."""
    records = {record.name: record for record in SecretRecord.objects.all()}
    each = (_problem(kind, records.get(kind.name)) for kind in KINDS.values() if kind.required)
    return [problem for problem in each if problem is not None]


def remember() -> None:
    """Have a new database remember the secrets of its first process. Of two at once, the second is compared."""
    known = {*SecretRecord.objects.values_list("name", flat=True)}
    for kind in KINDS.values():
        if kind.required and kind.name not in known:
            SecretRecord.objects.get_or_create(name=kind.name, defaults={"key_id": key_ids(kind.name)[0]})


def require_match(name: str) -> None:
    """Raise SecretMismatchError (503) if a secret is not the database's, instead of an error that blames the caller."""
    problem = _problem(KINDS[name], SecretRecord.objects.filter(name=name).first())
    if problem is not None:
        raise SecretMismatchError(problem)


def _problem(kind: SecretKind, record: SecretRecord | None) -> SecretProblem | None:
    try:
        ids = key_ids(kind.name)
    except SettingsError as error:
        fix = "Restore it from the backup that belongs to this database; docs/operations/secrets.md."
        return SecretProblem(kind.name, str(error), fix)
    if record is None or record.key_id in ids or (record.next_id and record.next_id in ids):
        return None
    path = file_of(kind.name)
    source = f"the file {path}" if path else f"the variable {kind.variable}"
    return SecretProblem(
        kind.name,
        f"The secret {kind.name} of this process ({', '.join(ids)}, from {source}) is not the one with which the "
        f"database was made ({record.key_id}). It {kind.purpose}.",
        f"Restore the one that belongs to this database, the same for all processes. If it is lost: manage.py "
        f"rotate_secret {kind.name} adopt.",
    )


@register(Tags.database)
def secrets_match(app_configs: Any, databases: Any = None, **options: Any) -> list[CheckMessage]:
    """Report secrets of another installation to `manage.py migrate` and `manage.py check --database default`."""
    if "default" not in (databases or []):
        return []
    try:
        if SecretRecord._meta.db_table not in connections["default"].introspection.table_names():
            return []
        return [Error(problem.message, hint=problem.fix, id="lorikeet.E001") for problem in problems()]
    except (DatabaseError, InterfaceError):
        return []  # the command itself reports the database


def report() -> list[SecretProblem]:
    """Log each problem at the start of a process. While the database does not answer there is nothing to compare."""
    try:
        mismatches = problems()
        if not mismatches:
            remember()
            mismatches = problems()
    except (DatabaseError, InterfaceError):
        return []
    for problem in mismatches:
        logger.error("%s %s", problem.message, problem.fix)
    return mismatches


def require_at_start() -> None:
    """End a process that would fail all its work with these secrets. Raises SystemExit."""
    if not apps.ready:
        django.setup()
    if not current().is_embedded and report():
        raise SystemExit(1)
