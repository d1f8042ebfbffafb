"""The two registries of metrics.

`prometheus_client.REGISTRY` has what one process counts, and every process shows it. `INSTALLATION` has what the
database and Redis hold, which is the same for all; only web processes show it, so that a scrape of workers costs no
query. Rules take the maximum over web processes.
"""

from __future__ import annotations

import threading

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

INSTALLATION = CollectorRegistry()
CONTENT_TYPE = CONTENT_TYPE_LATEST


# Maximum number of different values of one label whose values other machines choose, such as the error codes of
# engine hosts.
MAX_VALUES = 100


class BoundedValues:
    """The values of one label: the first hundred as they are, further ones as "other". Thread-safe."""

    def __init__(self) -> None:
        self._lock, self._known = threading.Lock(), set[str]()

    def label(self, value: str) -> str:
        """Return the value to use as a label."""
        with self._lock:
            if value in self._known or len(self._known) < MAX_VALUES:
                self._known.add(value)
                return value
        return "other"


def process_text() -> bytes:
    """Return what this process counts, in Prometheus' text format."""
    return generate_latest(REGISTRY)


def web_text() -> bytes:
    """Return what this process counts, and the state of the installation. Reads the database and Redis."""
    return process_text() + generate_latest(INSTALLATION)
