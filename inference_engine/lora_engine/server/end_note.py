"""Why the engine before this one ended: it writes that down, and the next one tells it to whoever looks at hosts."""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

log = logging.getLogger(__name__)

_SUDDEN = "it was killed, or its machine went down"
_LONGEST = 1000  # characters


@dataclass(frozen=True, slots=True)
class LastEnd:
    """``at`` is a unix time, 0 where nobody knows."""

    reason: str
    at: float


class EndNote:
    """A file in the data folder, there from the moment an engine serves until one ends as it should."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "end.json"

    def begin(self) -> LastEnd | None:
        """What the engine before left, None if it ended as it should; from now on, an end without a note is sudden."""
        last = self._read()
        self._write(LastEnd(_SUDDEN, 0.0))
        return last

    def write(self, reason: str) -> None:
        """This engine ends, for a reason; its process may be gone at once."""
        self._write(LastEnd(reason[:_LONGEST], time.time()))

    def clear(self) -> None:
        """It ends as it should."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s cannot be removed: %s", self._path, error.strerror)

    def _read(self) -> LastEnd | None:
        try:
            stored = json.loads(self._path.read_text())
            return LastEnd(str(stored["reason"])[:_LONGEST], float(stored["at"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError):  # written as the disk became full, or by others
            return LastEnd("its reason cannot be read", 0.0)

    def _write(self, end: LastEnd) -> None:
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            temporary.write_text(json.dumps(asdict(end)))
            temporary.replace(self._path)
        except OSError as error:
            log.warning("why the engine ends cannot be written to %s: %s", self._path, error.strerror)
