"""The values of each secret: the one in use, and others that are accepted beside it during a rotation.

A setting holds the values themselves, separated by commas, or `@/path` of a file with one in each line. A secret that
an installation cannot be without has a file in LORIKEET_SECRETS_DIR if its setting is empty, made at first use. The
first value is in use. Files are read again when they change, so running processes follow a rotation without a restart.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import threading
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from control_plane.core.config import Settings, SettingsError, current, read_or_create_secret, split_list

logger = logging.getLogger(__name__)

# Seconds after which a file is looked at again, and in which every process follows a change.
FOLLOW_S = 1.0
# Maximum number of values in one file. A rotation needs two.
MAX_VALUES = 4
_MAX_BYTES = 1 << 16


@dataclass(frozen=True)
class SecretKind:
    """A secret by the name of its file and of `manage.py rotate_secret`."""

    name: str
    purpose: str
    # True if the installation cannot be without it: it is made at first use, and the database remembers its id.
    required: bool = True
    # Days between the switch and the end of a rotation, for what others keep and the database cannot count.
    overlap_days: int = 0

    @property
    def field(self) -> str:
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        return f"LORIKEET_{self.field.upper()}"


KINDS = {
    kind.name: kind
    for kind in (
        SecretKind("secret-key", "signs sessions, links, invitations and ids of requests", overlap_days=7),
        SecretKind("key-pepper", "hashes API keys and join tokens"),
        SecretKind("sealing-key", "encrypts secrets that the database keeps, such as those of authenticator apps"),
        SecretKind("authority-key", "is the key of the authority that certifies hosts"),
        SecretKind("webhook-key", "derives the secrets that sign webhooks", overlap_days=7),
        SecretKind("engine-token", "is sent to engine hosts of the settings", required=False),
        SecretKind("metrics-token", "is sent by readers of the metrics", required=False),
    )
}


class SecretFileError(SettingsError):
    """A file of a secret that cannot be read, or that is damaged."""


@dataclass(frozen=True)
class _Reading:
    values: tuple[str, ...]
    stamp: tuple[int, int, int]
    checked_at: float


_readings: dict[Path, _Reading] = {}
_lock = threading.Lock()


def accepted(name: str, settings: Settings | None = None) -> tuple[str, ...]:
    """Return the values of a secret, the one in use first; empty for one that is not set. Raises SettingsError."""
    settings = settings or current()
    path = file_of(name, settings)
    if path is None:
        return _split(getattr(settings, KINDS[name].field))
    return _of_file(path, create=path == settings.secrets / name)


def values_of(text: str) -> tuple[str, ...]:
    """Return the values of a setting's text that is not empty. Raises SettingsError."""
    return _of_file(Path(text[1:]), create=False) if text.startswith("@/") else _split(text)


def in_use(name: str) -> str:
    """Return the value in use of a required secret. Raises SettingsError."""
    return accepted(name)[0]


def file_of(name: str, settings: Settings | None = None) -> Path | None:
    """Return the file of a secret; None if its setting holds the values, or is empty where it may be."""
    settings = settings or current()
    text: str = getattr(settings, KINDS[name].field)
    if text.startswith("@/"):
        return Path(text[1:])
    return settings.secrets / name if KINDS[name].required and not text else None


def is_one_of(sent: str, values: tuple[str, ...]) -> bool:
    """Return True if a caller sent one of the values, in a time that does not depend on which."""
    return sum(hmac.compare_digest(sent.encode(), value.encode()) for value in values) > 0


def key_id(name: str, value: str) -> str:
    """Return the id of a value: it stands beside what was made with the value, and reveals nothing about it."""
    return hashlib.sha256(f"lorikeet {name}: {value}".encode()).hexdigest()[:8]


def key_ids(name: str) -> list[str]:
    return [key_id(name, value) for value in accepted(name)]


def by_id(name: str, identifier: str) -> str | None:
    """Return the accepted value with an id."""
    return next((value for value in accepted(name) if key_id(name, value) == identifier), None)


def forget(path: Path) -> None:
    """Read a file anew at its next use."""
    with _lock:
        _readings.pop(path, None)


@lru_cache(maxsize=64)
def _split(text: str) -> tuple[str, ...]:
    return tuple(split_list(text))


def _of_file(path: Path, *, create: bool) -> tuple[str, ...]:
    reading = _readings.get(path)
    if reading is None or time.monotonic() - reading.checked_at >= FOLLOW_S:
        with _lock:
            _readings[path] = reading = _read_again(path, _readings.get(path), create)
    return reading.values


def _read_again(path: Path, before: _Reading | None, create: bool) -> _Reading:
    """Read a file unless it is as before. A running process keeps what it knows while the file cannot be read."""
    now = time.monotonic()
    try:
        if before is None and create and not path.exists():
            read_or_create_secret(path)
        status = path.stat()
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        if before is not None and before.stamp == stamp:
            return _Reading(before.values, stamp, now)
        return _Reading(read_values(path), stamp, now)
    except (OSError, SecretFileError) as error:
        text = str(error) if isinstance(error, SecretFileError) else f"{path} cannot be read: {error.strerror}."
        if before is None:
            raise SecretFileError(f"{text} Restore it from the backup.") from None
        logger.error("%s The process goes on with the values that it has read before.", text)
        return _Reading(before.values, before.stamp, now + 9)


def read_values(path: Path) -> tuple[str, ...]:
    """Return the values of a file. Raises SecretFileError, OSError."""
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
    try:
        lines = content.decode("ascii").split("\n")
    except UnicodeDecodeError:
        lines = []
    values = tuple(line.strip() for line in lines if line.strip())
    damaged = not values or len(values) > MAX_VALUES or len({*values}) < len(values) or len(content) > _MAX_BYTES
    if damaged or not all(value.isprintable() and " " not in value and "," not in value for value in values):
        raise SecretFileError(f"{path} is damaged: it must hold one to {MAX_VALUES} secrets, each in a line.")
    return values


def write_values(path: Path, values: tuple[str, ...]) -> None:
    """Replace a file at once, so that no reader sees a part of it. Raises OSError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write("\n".join(values) + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    forget(path)
