"""Two web processes of one installation, over PostgreSQL and Redis."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from lorikeet_testing.web import WebProcess


@contextmanager
def two_processes(folder: Path, engine_hosts: str) -> Iterator[list[WebProcess]]:
    """Both ready for the seeded adapters; the first runs the worker's tasks too."""
    server_url, name = os.environ["LORIKEET_TEST_DATABASE_URL"], f"two_{uuid.uuid4().hex[:12]}"
    env = {
        "LORIKEET_DATABASE_URL": f"{server_url.rpartition('/')[0]}/{name}",
        "LORIKEET_REDIS_URL": os.environ["LORIKEET_TEST_REDIS_URL"],
        "LORIKEET_SECRET_KEY": "s" * 50,
    }
    with psycopg.connect(server_url, autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{name}"')
        first = WebProcess(folder / "var", engine_hosts, {**env, "LORIKEET_EMBEDDED": "1"})
        second = WebProcess(folder / "var", engine_hosts, env)
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
            server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
