"""PostgreSQL's files are lost, and restored from a base backup and archived log under load: the ledger is exact."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from lorikeet_testing.drills import Load, check_ledger, report
from lorikeet_testing.fake_engine import Behaviour, FakeEngineThread
from lorikeet_testing.web import SECRET_KEY, WebProcess, eventually

from scripts.test_services import Postgres, postgres, redis, server_folder

pytestmark = [pytest.mark.long, pytest.mark.services]
ARCHIVER = "archive"


def body(number: int) -> dict[str, Any]:
    words = (3, 20, 60)[number % 3]
    return {"model": "support", "messages": [{"role": "user", "content": f"words {words}"}], "max_tokens": words}


class Archive:
    """A base backup and, beside it, the log as it is written: a commit waits until its log is there too."""

    def __init__(self, server: Postgres, folder: Path) -> None:
        self._server, self.base, self.log = server, folder / "base", folder / "log"
        self._source = f"host=127.0.0.1 port={server.port} user=lorikeet"
        folder.mkdir()
        shutil.chown(folder, server._account or None)

    @contextmanager
    def receiving(self) -> Iterator[None]:
        """Receive the log while the block runs, and make the base backup first."""
        server = self._server
        self.log.mkdir()
        shutil.chown(self.log, server._account or None)
        password = self.base.parent / "pgpass"
        password.write_text(f"127.0.0.1:{server.port}:*:lorikeet:{server._password}\n")
        password.chmod(0o600)
        shutil.chown(password, server._account or None)
        source = f"{self._source} application_name={ARCHIVER} passfile={password}"
        process = server._run.spawn(
            server._binaries / "pg_receivewal", "--directory", self.log, "--dbname", source, "--synchronous",
            "--no-loop", log="receivewal.log",
        )  # fmt: skip
        try:
            with psycopg.connect(server.url, autocommit=True) as primary:
                primary.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{ARCHIVER}'")
                primary.execute("SELECT pg_reload_conf()")
                receives = b"SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
                eventually(lambda: primary.execute(receives).fetchall(), 60, what="a synchronous archive")
            server._run(
                server._binaries / "pg_basebackup", "--pgdata", self.base, "--dbname", self._source,
                "--wal-method", "none", "--checkpoint", "fast", "--no-sync", PGPASSWORD=server._password,
            )  # fmt: skip
            yield
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def restore(self) -> None:
        """Put the base backup into the server's place and have it repeat the archived log, to its end."""
        data = self._server.folder / "data"
        self._server._run("cp", "-a", self.base, data)
        with (data / "postgresql.auto.conf").open("a") as settings:
            # The last file of the log is incomplete, and named so.
            command = f'cp "{self.log}/%f" "%p" || cp "{self.log}/%f.partial" "%p"'
            settings.write(f"restore_command = '{command}'\nsynchronous_standby_names = ''\n")
        (data / "recovery.signal").touch()
        self._server.start()
        with psycopg.connect(self._server.url, autocommit=True) as server:
            over = b"SELECT NOT pg_is_in_recovery()"
            eventually(lambda: server.execute(over).fetchone() == (True,), 120, what="the end of recovery")


def test_the_ledger_is_restored_with_every_answer(tmp_path: Path) -> None:
    engine = FakeEngineThread(f"unix:{tmp_path}/e.sock", Behaviour(steps_per_second=100))
    with (
        server_folder() as root,
        postgres(root / "postgres", synchronous_commit="on") as server,
        redis(root / "redis") as queue,
    ):
        own = {
            "LORIKEET_DATABASE_URL": server.url,
            "LORIKEET_REDIS_URL": queue.url,
            "LORIKEET_SECRET_KEY": SECRET_KEY,
            "LORIKEET_EMBEDDED": "1",
        }
        web = WebProcess(tmp_path / "var", f"local={engine.engine.address}", {}, installation=own)
        try:
            web.seed()
            archive = Archive(server, root / "archive")
            with archive.receiving():
                web.start()
                web.wait_until_ready("support")
                load = Load(web.url, web.tenants["acme"].key, body)
                with load.running():
                    load.progress()
                    server.kill()
                    shutil.rmtree(server.folder / "data")
                    load.progress()
                    archive.restore()
                    load.progress()
            report("point_in_time", {"": load}, "base backup and archived log after SIGKILL and rm -r of the database")
            assert load.failures == []
            check_ledger(web, load.answers)
            journal = engine.engine.journal
            eventually(lambda: engine.engine.acknowledged == journal.keys(), 60, what="the journal acknowledged")
        finally:
            web.stop()
            engine.close()
