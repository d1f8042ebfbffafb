"""The steps of a rotation: begin (both values accepted), switch (the new one in use), finish (the old one refused).

Where a secret has a file that can be written, the steps change the file. Where it is a variable of the environment,
or a file that others provide, the operator changes the list and restarts the processes one by one, and the steps check
the list and record it. The state follows from the order of the values and from the record in the database, so a step
that was interrupted is completed by repeating it.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from django.db import transaction
from django.utils import timezone

from control_plane.core.secrets import keys
from control_plane.core.secrets.keys import KINDS, SecretKind, file_of, key_id, key_ids, read_values, write_values
from control_plane.core.secrets.models import SecretRecord

# Seconds between the steps begin and switch, in which every process has read the file.
SETTLE_S = 3 * keys.FOLLOW_S


class State(StrEnum):
    IDLE = "idle"
    BEGUN = "begun"
    SWITCHED = "switched"
    MISMATCH = "mismatch"


class RotationError(ValueError):
    """A step that cannot be taken now; the message says why, and what to do."""


@dataclass(frozen=True)
class Rotation:
    """The state of a secret: ids of its accepted values, the one in use first."""

    kind: SecretKind
    state: State
    ids: list[str]
    source: str
    begun_at: datetime | None
    switched_at: datetime | None

    @property
    def old_id(self) -> str:
        return self.ids[-1] if self.state is State.SWITCHED else self.ids[0]

    @property
    def new_id(self) -> str:
        return self.ids[0] if self.state is State.SWITCHED else self.ids[-1]


def rotation_of(name: str) -> Rotation:
    """Return the state of a secret. Raises SettingsError for a damaged file."""
    return _rotation(KINDS[name], SecretRecord.objects.filter(name=name).first())


def _rotation(kind: SecretKind, record: SecretRecord | None) -> Rotation:
    ids, path = key_ids(kind.name), file_of(kind.name)
    state = State.IDLE
    if record is not None and record.next_id and len(ids) == 2 and {*ids} == {record.key_id, record.next_id}:
        state = State.BEGUN if ids[0] == record.key_id else State.SWITCHED
    elif record is not None and kind.required and not {record.key_id, record.next_id} & {*ids}:
        state = State.MISMATCH
    source = str(path) if path else kind.variable
    return Rotation(
        kind, state, ids, source, record.begun_at if record else None, record.switched_at if record else None
    )


def begin(name: str) -> Rotation:
    """Accept a new value beside the one in use. Raises RotationError."""
    with _record(name) as record:
        kind = KINDS[name]
        rotation = _rotation(kind, record)
        if rotation.state in (State.BEGUN, State.SWITCHED):
            raise RotationError(
                f"A rotation of {name} is under way: {rotation.state} since {_since(rotation)}. Go on with "
                "it, or abort it."
            )
        _require_values(rotation)
        if len(rotation.ids) > 2:
            raise RotationError(f"{rotation.source} holds {len(rotation.ids)} values. Leave the one in use only.")
        if len(rotation.ids) == 1:
            path = _writable(kind)
            new = secrets.token_urlsafe(48)
            if path is None:
                raise RotationError(_edit(kind, "<the present value>,<the new value>", "begin"))
            record.next_id = key_id(name, new)
            _save(record, rotation.ids[0])
            write_values(path, (*read_values(path), new))
        elif rotation.ids[1] == record.key_id and kind.required:
            raise RotationError(_edit(kind, "<the present value>,<the new value>", "begin"))
        else:  # the operator has set both, or this step was interrupted after it wrote the file
            record.next_id = rotation.ids[1]
            _save(record, rotation.ids[0])
    return rotation_of(name)


def switch(name: str) -> Rotation:
    """Put the new value in use; the old one is still accepted. Repeating it changes nothing. Raises RotationError."""
    settle(name)
    with _record(name) as record:
        rotation = _rotation(KINDS[name], record)
        if rotation.state is State.BEGUN:
            _swap(rotation, "<the new value>,<the old value>", "switch")
            rotation = _rotation(KINDS[name], record)
        if rotation.state is not State.SWITCHED:
            raise RotationError(f"No rotation of {name} has begun. Run: manage.py rotate_secret {name} begin.")
        if record.switched_at is None:
            record.switched_at = timezone.now()
            record.save(update_fields=["switched_at"])
    return rotation_of(name)


def finish(name: str, *, discard: bool = False) -> Rotation:
    """Refuse the old value. Raises RotationError before the overlap has ended, unless ``discard``."""
    with _record(name) as record:
        kind = KINDS[name]
        rotation = _rotation(kind, record)
        completed = record.next_id != "" and rotation.ids == [record.next_id]  # interrupted after it wrote the file
        if rotation.state is not State.SWITCHED and not completed:
            raise RotationError(f"{name} is not switched yet. Run: manage.py rotate_secret {name} switch.")
        end = (record.switched_at or timezone.now()) + timedelta(days=kind.overlap_days)
        if not completed and not discard and timezone.now() < end:
            raise RotationError(
                f"What others keep under the old value of {name} is valid until {end:%Y-%m-%d %H:%M} UTC. Finish it "
                "then, or use --discard after a leak."
            )
        record.key_id, record.next_id, record.begun_at, record.switched_at = rotation.ids[0], "", None, None
        record.save()
        if not completed and (path := _writable(kind)) is not None:
            write_values(path, read_values(path)[:1])
    return rotation_of(name)


def abort(name: str) -> Rotation:
    """Go one step back: to the old value in use, or from there to the old value alone. Raises RotationError."""
    settle(name)
    with _record(name) as record:
        kind = KINDS[name]
        rotation = _rotation(kind, record)
        if rotation.state is State.SWITCHED:
            _swap(rotation, "<the old value>,<the new value>", "abort")
            record.switched_at = None
            record.save(update_fields=["switched_at"])
        elif rotation.state is State.BEGUN:
            record.next_id, record.begun_at = "", None
            record.save()
            if (path := _writable(kind)) is not None:
                write_values(path, read_values(path)[:1])
        elif record.next_id and rotation.ids == [record.key_id]:  # begin was interrupted before it wrote the file
            record.next_id, record.begun_at = "", None
            record.save()
        else:
            raise RotationError(f"There is no rotation of {name} to abort.")
    return rotation_of(name)


def adopt(name: str) -> Rotation:
    """Make the values of this process those of the installation. What was made with others is lost for good."""
    with _record(name) as record:
        ids = key_ids(name)
        record.key_id, record.next_id, record.begun_at, record.switched_at = ids[0], "", None, None
        record.save()
    return rotation_of(name)


@contextmanager
def _record(name: str) -> Iterator[SecretRecord]:
    """Lock the record of a secret: of two commands at once, the second sees what the first one did."""
    with transaction.atomic():
        ids = key_ids(name)
        SecretRecord.objects.get_or_create(name=name, defaults={"key_id": ids[0] if ids else ""})
        record = SecretRecord.objects.select_for_update().get(name=name)
        if (path := file_of(name)) is not None:
            keys.forget(path)
        yield record


def settle(name: str) -> None:
    """Wait until every process has read the file, before the lock that would make their writes wait on SQLite."""
    path = file_of(name)
    if path is not None and path.exists():
        time.sleep(max(0.0, min(SETTLE_S, SETTLE_S - (time.time() - path.stat().st_mtime))))


def _save(record: SecretRecord, present: str) -> None:
    record.key_id, record.begun_at, record.switched_at = present, timezone.now(), None
    record.save()


def _swap(rotation: Rotation, order: str, step: str) -> None:
    path = _writable(rotation.kind)
    if path is None:
        raise RotationError(_edit(rotation.kind, order, step))
    first, second = read_values(path)
    write_values(path, (second, first))


def _require_values(rotation: Rotation) -> None:
    if rotation.state is State.MISMATCH:
        raise RotationError(f"{rotation.source} is not of this database: manage.py check --database default says more.")
    if not rotation.ids:
        raise RotationError(f"{rotation.kind.variable} is not set, so there is nothing to rotate.")


def _writable(kind: SecretKind) -> Path | None:
    """Return the file of a secret if this process may replace it."""
    path = file_of(kind.name)
    return path if path is not None and os.access(path.parent, os.W_OK) else None


def _edit(kind: SecretKind, order: str, step: str) -> str:
    path = file_of(kind.name)
    where = f"the lines of {path}" if path else kind.variable
    restart = "" if path else ", restart all processes one after the other"
    return (
        f"Set {where} to {order}{restart}, then run this step again (manage.py rotate_secret {kind.name} {step}). "
        "openssl rand -base64 48 makes a new value."
    )


def _since(rotation: Rotation) -> str:
    moment = rotation.switched_at or rotation.begun_at
    return f"{moment:%Y-%m-%d %H:%M} UTC" if moment else "now"
