"""Two web processes of one installation, over PostgreSQL and Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lorikeet_testing.web import WebProcess, new_installation


@contextmanager
def two_processes(folder: Path, engine_hosts: str) -> Iterator[list[WebProcess]]:
    """Start two web processes, both ready for the seeded adapters; the first runs the worker's tasks too."""
    installation = new_installation()
    first = WebProcess(folder / "var", engine_hosts, installation=installation)
    second = WebProcess(folder / "var", engine_hosts, {"LORIKEET_EMBEDDED": "0"}, installation=installation)
    try:
        first.seed()
        second.tenants = first.tenants
        for web in (first, second):
            web.start()
        first.wait_until_ready("support")
        yield [first, second]
    finally:
        for web in (first, second):
            web.stop()
