"""Remember what a step was done with, so that it is skipped while nothing changed.

A stamp is the hash of everything the step depends on. Hashes of contents, not
times: a fresh clone or a `git checkout` that restores a file changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path


def digest_of(parts: Iterable[str | bytes | Path]) -> str:
    """SHA-256 over texts, bytes and whole files, in order, each with its length."""
    total = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "big"))
        total.update(data)
    return total.hexdigest()


class Stamp:
    """A file beside what it describes, so that deleting the one deletes the other."""

    def __init__(self, path: Path, digest: str) -> None:
        self.path = path
        self.digest = digest

    def holds(self) -> bool:
        return self.path.is_file() and self.path.read_text() == self.digest

    def write(self) -> None:
        self.path.write_text(self.digest)
