"""A standby of a PostgreSQL server of the tests: a base backup that follows by streaming replication."""

from __future__ import annotations

from pathlib import Path

import psycopg

from lorikeet_testing.web import eventually
from scripts.test_services import Postgres

NAME = "standby"


class Standby(Postgres):
    """A server that repeats everything of `primary` until it is promoted."""

    def __init__(self, folder: Path, primary: Postgres) -> None:
        super().__init__(folder, synchronous_commit="on")
        self._primary, self._password = primary, primary._password
        self.url = f"postgres://lorikeet:{self._password}@127.0.0.1:{self.port}/lorikeet"

    def create(self) -> None:
        """Copy the primary, follow it, and have it acknowledge only what this server has too."""
        source = f"host=127.0.0.1 port={self._primary.port} user=lorikeet application_name={NAME}"
        self._run(
            self._binaries / "pg_basebackup", "--pgdata", self.folder / "data", "--dbname", source,
            "--write-recovery-conf", "--wal-method", "stream", "--checkpoint", "fast", "--no-sync",
            PGPASSWORD=self._password,
        )  # fmt: skip
        self.start()
        with psycopg.connect(self._primary.url, autocommit=True) as primary:
            primary.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{NAME}'")
            primary.execute("SELECT pg_reload_conf()")
            synchronous = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
            eventually(lambda: primary.execute(synchronous.encode()).fetchall(), 60, what="a synchronous standby")

    def promote(self) -> None:
        """Make this server a primary that waits for no standby, and wait until it takes writes."""
        with psycopg.connect(self.url, autocommit=True) as server:
            server.execute("ALTER SYSTEM RESET synchronous_standby_names")
            server.execute("SELECT pg_reload_conf()")
            server.execute("SELECT pg_promote(true, 60)")
            eventually(lambda: server.execute("SELECT NOT pg_is_in_recovery()").fetchone() == (True,), 60)


def url_of_both(primary: Postgres, standby: Standby) -> str:
    """Return a URL that names both servers, as an installation with a standby has it."""
    ours, theirs = f"127.0.0.1:{primary.port}", f"127.0.0.1:{standby.port}"
    return primary.url.replace(ours, f"{ours},{theirs}") + "?target_session_attrs=read-write"
