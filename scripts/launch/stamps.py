"""Stamps of finished steps: a step is skipped while its inputs are the same.

A stamp is the hash of all inputs of a step. It hashes contents and not times, because a fresh clone or a `git checkout`
that restores a file changes only the times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path


def digest_of(parts: Iterable[str | bytes | Path]) -> str:
    """Return the SHA-256 of texts, bytes and files, in order, each with its length."""
    total = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "big"))
        total.update(data)
    return total.hexdigest()


class Stamp:
    """A file in the folder that a step makes, so that deleting the folder deletes the stamp."""

    def __init__(self, path: Path, digest: str) -> None:
        self.path = path
        self.digest = digest

    def holds(self) -> bool:
        return self.path.is_file() and self.path.read_text() == self.digest

    def write(self) -> None:
        self.path.write_text(self.digest)
