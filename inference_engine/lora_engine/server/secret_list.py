"""Secrets that callers send: one, or several that are accepted while they are being changed."""

from __future__ import annotations

import hmac
import logging
import time
from pathlib import Path

log = logging.getLogger(__name__)

# Seconds after which a file is looked at again.
_FOLLOW_S = 1.0


class SecretList:
    """The values of a setting, separated by commas, or of a file (``@/path``) with one in each line.

    The file is read again when it changes. While it cannot be read, its last values are accepted.
    """

    def __init__(self, text: str) -> None:
        self._path = Path(text[1:]) if text.startswith("@/") else None
        self._values = [part.strip().encode() for part in text.split(",") if part.strip()]
        self._stamp: tuple[int, int, int] | None = None
        self._checked_at = 0.0
        if self._path is not None:
            self._values = self._read(self._path)

    def __bool__(self) -> bool:
        return bool(self._values)

    def accepts(self, secret: str) -> bool:
        """Return True if a caller sent one of the values."""
        if self._path is not None and time.monotonic() - self._checked_at >= _FOLLOW_S:
            self._follow(self._path)
        sent = secret.strip().encode()
        return sum(hmac.compare_digest(sent, value) for value in self._values) > 0

    def _follow(self, path: Path) -> None:
        self._checked_at = time.monotonic()
        try:
            status = path.stat()
            if (stamp := (status.st_ino, status.st_mtime_ns, status.st_size)) != self._stamp:
                self._values, self._stamp = self._read(path), stamp
        except (OSError, ValueError) as error:
            log.error("a file of secrets cannot be read; its last values stay", extra={"reason": str(error)})

    @staticmethod
    def _read(path: Path) -> list[bytes]:
        """Return the values of a file. Raises OSError, ValueError for one without any."""
        values = [line.strip() for line in path.read_bytes().split(b"\n") if line.strip()]
        if not values:
            raise ValueError(f"{path} is empty; it must hold a secret in each line")
        return values
