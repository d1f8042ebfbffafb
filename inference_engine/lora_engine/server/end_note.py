"""A note on disk records why an engine ended; the next engine on the data folder reports it."""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

log = logging.getLogger(__name__)

# Reason reported when the engine left none.
_SUDDEN = "it was killed, or its machine went down"
# Maximum number of characters of a reason that are written.
_MAX_REASON_CHARS = 1000


@dataclass(frozen=True, slots=True)
class LastEnd:
    """The end of the previous engine. ``at`` is a unix time, 0 if unknown."""

    reason: str
    at: float


class EndNote:
    """A file in the data folder that exists from the moment an engine serves until one ends normally."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "end.json"

    def begin(self) -> LastEnd | None:
        """Return the previous engine's end, None if it ended normally. From now on an end without a note counts as
        sudden.
        """
        last = self._read()
        self._write(LastEnd(_SUDDEN, 0.0))
        return last

    def write(self, reason: str) -> None:
        """Write the reason for the end of this engine before its process exits."""
        self._write(LastEnd(reason[:_MAX_REASON_CHARS], time.time()))

    def clear(self) -> None:
        """Remove the note: the engine ends normally."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s cannot be removed: %s", self._path, error.strerror)

    def _read(self) -> LastEnd | None:
        try:
            stored = json.loads(self._path.read_text())
            return LastEnd(str(stored["reason"])[:_MAX_REASON_CHARS], float(stored["at"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError):  # written while the disk was full, or by another program
            return LastEnd("its reason cannot be read", 0.0)

    def _write(self, end: LastEnd) -> None:
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            temporary.write_text(json.dumps(asdict(end)))
            temporary.replace(self._path)
        except OSError as error:
            log.warning("why the engine ends cannot be written to %s: %s", self._path, error.strerror)
