"""The digest of a base model, computed once for each state of its files."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

# Bytes read at a time.
_BLOCK = 1 << 22
# Nanoseconds that must lie between a file's last change and its reading before its digest is stored: a later change
# within the same clock tick would not be noticed.
_SETTLED_NS = 2 * 10**9
_FORMAT = 1


def base_digest(folder: Path, progress: Callable[[float], None] = lambda share: None) -> str:
    """Return the ``sha256:`` digest of the names and contents of the configuration and weight files."""
    digest, files, read = hashlib.sha256(), _files(folder), 0
    total = max(sum(path.stat().st_size for path in files), 1)
    for path in files:
        digest.update(path.name.encode())
        with path.open("rb", buffering=0) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                read += len(block)
                progress(read / total)
    return "sha256:" + digest.hexdigest()


class DigestMemory:
    """A JSON file with the digests of folders, each with the state of its files.

    The state is each file's name, size, times of change and inode: every write to a file, and its replacement, changes
    its ``ctime``, which no program can set. The digest of any other state is computed again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def digest(self, folder: Path, progress: Callable[[float], None] = lambda share: None) -> str:
        key, state, now = str(folder.resolve()), files_state(folder), time.time_ns()
        known = self._read().get(key)
        if isinstance(known, dict) and known.get("state") == state and isinstance(known.get("digest"), str):
            digest: str = known["digest"]
            return digest
        digest = base_digest(folder, progress)
        newest = max(max(entry[2], entry[3]) for entry in state)
        if files_state(folder) == state and newest < now - _SETTLED_NS:
            self._write({**self._read(), key: {"state": state, "digest": digest}})
        return digest

    def _read(self) -> dict[str, Any]:
        try:
            stored = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        digests = stored.get("digests") if isinstance(stored, dict) and stored.get("format") == _FORMAT else None
        return digests if isinstance(digests, dict) else {}

    def _write(self, digests: dict[str, Any]) -> None:
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            temporary.write_text(json.dumps({"format": _FORMAT, "digests": digests}))
            temporary.replace(self._path)
        except OSError as error:
            log.warning(
                "the base model's digest cannot be written to %s (%s); the next start computes it again",
                self._path,
                error.strerror,
            )


def _files(folder: Path) -> list[Path]:
    return sorted([folder / "config.json", *folder.glob("*.safetensors")])


def files_state(folder: Path) -> list[list[Any]]:
    """Return name, size, times of change and inode of each file that the digest covers. Raises ``OSError``."""
    entries = []
    for path in _files(folder):
        status = path.stat()
        entries.append(
            [path.name, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev]
        )
    return entries
