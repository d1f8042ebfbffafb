"""A real web process over a database of its own, as a child of the test.

Where the tests have PostgreSQL and Redis it runs on these, with the worker inside all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import redis
from psycopg.rows import dict_row
from psycopg.sql import SQL, Literal

from lorikeet_testing.forked import ForkedProcess, run_forked
from lorikeet_testing.made_once import made_once

ROOT = Path(__file__).resolve().parents[3]
SOURCE_ROOTS = ("platform", "inference_engine", "kernels", "tests/support")
START_S = 90.0
STOP_S = 20.0
# Factor on waiting times: in a full run other tests have most of the processor.
PATIENCE = 3 if os.environ.get("LORIKEET_FULL_RUN") else 1
SECRET_KEY = "s" * 50
# Secrets of installations on services, which share no folder with the one that made their database.
SECRETS = {
    "LORIKEET_SECRET_KEY": SECRET_KEY,
    "LORIKEET_KEY_PEPPER": "p" * 50,
    "LORIKEET_SEALING_KEY": "e" * 50,
    "LORIKEET_AUTHORITY_KEY": "a" * 50,
    "LORIKEET_WEBHOOK_KEY": "w" * 50,
}
SEED = ("-m", "lorikeet_testing.seed")
# A shared client, since `httpx.get` reads all certificates first, which takes longer than the answer.
POLLING = httpx.Client(trust_env=False, verify=False, timeout=30)
# Below the ephemeral ports of systems: a port stays free until the process that received it listens there.
PORTS = range(10_240, 16_000)


def _ports() -> Iterator[int]:
    """Yield this worker's share of the ports, again and again."""
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", "gw0"), os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")
    ours = PORTS[int(worker.removeprefix("gw")) :: int(workers)]
    begin = os.getpid() % len(ours)
    return itertools.cycle([*ours[begin:], *ours[:begin]])


_circle = _ports()


def free_port() -> int:
    return next(port for port in _circle if _is_free(port))


def _is_free(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
        return True
    return False


def eventually(condition: Callable[[], Any], seconds: float = 30.0, *, what: str = "condition") -> Any:
    """Return the first true value of ``condition``; ``seconds`` is for a machine that has nothing else to do."""
    end = time.monotonic() + seconds * PATIENCE
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what} did not come true in {seconds * PATIENCE:g} s")


async def wait_until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    """Wait for a condition on the test's event loop; raises TimeoutError."""
    async with asyncio.timeout(seconds * PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)


def new_installation() -> dict[str, str]:
    """Return settings of an installation that shares nothing with another; empty where the tests have no services.

    Its database goes with the server, and its database in Redis too.
    """
    server_url = os.environ.get("LORIKEET_TEST_DATABASE_URL")
    if server_url is None:
        return {}
    name = f"installation_{uuid.uuid4().hex[:12]}"
    template = migrated_database()
    with psycopg.connect(server_url, autocommit=True) as server:
        _copy(server, template, name)
    redis_url = os.environ["LORIKEET_TEST_REDIS_URL"]
    with redis.Redis.from_url(redis_url) as counter:
        number = counter.incr("test-installations")
    return {
        "LORIKEET_DATABASE_URL": _database(server_url, name),
        "LORIKEET_REDIS_URL": f"{redis_url.rpartition('/')[0]}/{number}",
        **SECRETS,
        "LORIKEET_EMBEDDED": "1",
    }


# -- databases made once, of which each installation gets a copy: to migrate takes three seconds, to seed one ---------


def migrated_database() -> str:
    """Return the name of a migrated database on the tests' server that is only copied."""
    with psycopg.connect(_server_url(), autocommit=True) as server:
        _template(server, "migrated", [str(ROOT / "manage.py"), "migrate", "--verbosity=0"])
    return "migrated"


def _template(server: psycopg.Connection[Any], name: str, command: Sequence[str]) -> str:
    """Create a template database once, filled by the command; return what the command printed."""
    server.execute("SELECT pg_advisory_lock(1)")
    try:
        comment_of = "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = %s"
        if comment := server.execute(comment_of, [name]).fetchone():
            return str(comment[0])
        server.execute("DROP DATABASE IF EXISTS being_made")
        server.execute("CREATE DATABASE being_made")
        url = _database(_server_url(), "being_made")
        printed = _program(command, {"LORIKEET_DATABASE_URL": url, **SECRETS})
        server.execute(SQL("COMMENT ON DATABASE being_made IS {}").format(Literal(printed)))
        server.execute(f"ALTER DATABASE being_made RENAME TO {name}".encode())
        return printed
    finally:
        server.execute("SELECT pg_advisory_unlock(1)")


def _copy(server: psycopg.Connection[Any], template: str, name: str) -> None:
    server.execute(f'CREATE DATABASE "{name}" TEMPLATE {template}'.encode())


def _seeded_database(name: str, options: Sequence[str]) -> str:
    """Replace an unused database by one with the seed; return what the seed printed."""
    template = "_".join(["seeded", *(option.strip("-").replace("-", "_") for option in options)])
    with psycopg.connect(_server_url(), autocommit=True) as server:
        printed = _template(server, template, [*SEED, *options])
        server.execute(f'DROP DATABASE "{name}"'.encode())
        _copy(server, template, name)
    return printed


def migrated_folder() -> Path:
    """Return a data folder with a migrated SQLite database, which is only copied."""
    command = [str(ROOT / "manage.py"), "migrate", "--verbosity=0"]
    return made_once("migrated", lambda folder: _program(command, {"LORIKEET_VAR_DIR": str(folder)}))


def _seeded_folder(*options: str) -> tuple[Path, str]:
    """Return a data folder with the seed on SQLite, which is only copied, and what the seed printed."""

    def make(folder: Path) -> None:
        shutil.copytree(migrated_folder(), folder / "var")
        (folder / "printed").write_text(_program([*SEED, *options], {"LORIKEET_VAR_DIR": str(folder / "var")}))

    made = made_once("_".join(["seeded", *options]), make)
    return made / "var", (made / "printed").read_text()


def _server_url() -> str:
    return os.environ["LORIKEET_TEST_DATABASE_URL"]


def _database(server_url: str, name: str) -> str:
    return f"{server_url.rpartition('/')[0]}/{name}"


def _program(command: Sequence[str], settings: Mapping[str, str]) -> str:
    """Run a Python program with these LORIKEET_ settings only; return what it printed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("LORIKEET_")}
    paths = os.pathsep.join(str(ROOT / root) for root in SOURCE_ROOTS)
    env = {**env, "PYTHONPATH": paths, **settings}
    done = subprocess.run([sys.executable, *command], env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass(frozen=True)
class TenantAccess:
    """The ids and credentials that the seed created for one tenant."""

    id: str
    email: str
    password: str
    key: str
    view_only_key: str

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


class WebProcess:
    """A web process over its seeded database. ``query`` reads the database beside the process.

    `installation` is another process's, to be one installation with it; by default this is a new one.
    """

    def __init__(
        self,
        var: Path,
        engine_hosts: str,
        env: Mapping[str, str] | None = None,
        *,
        installation: Mapping[str, str] | None = None,
        graceful_s: int = 2,
    ) -> None:
        self._graceful_s = graceful_s
        self.installation = new_installation() if installation is None else installation
        self.var = var
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = var / "web.log"
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("LORIKEET_")},
            "PYTHONPATH": os.pathsep.join(str(ROOT / root) for root in SOURCE_ROOTS),
            "LORIKEET_VAR_DIR": str(var),
            "LORIKEET_ENGINE_HOSTS": engine_hosts,
            "LORIKEET_LOG_JSON": "0",
            "CELERY_SKIP_CHECKS": "1",  # of models, which take a tenth of the start
            "LORIKEET_HOST_RETURN_S": "1",  # tests end engines for good
            "DJANGO_SETTINGS_MODULE": "control_plane.settings",
            **self.installation,
            **(env or {}),
        }
        self.process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self.tenants: dict[str, TenantAccess] = {}

    def seed(self, *, adapters: bool = True) -> None:
        """Seed two tenants. Their adapters have no files; leave them out where the engine is a real one."""
        self.var.mkdir(parents=True, exist_ok=True)
        options = [] if adapters else ["--without-adapters"]
        server, _, database = self.installation.get("LORIKEET_DATABASE_URL", "").rpartition("/")
        if not database:
            folder, printed = _seeded_folder(*options)
            shutil.copytree(folder, self.var, dirs_exist_ok=True)
        elif server == _server_url().rpartition("/")[0]:
            printed = _seeded_database(database, options)
        else:  # a server of the test's own
            printed = _program([*SEED, *options], {**self.installation, "LORIKEET_VAR_DIR": str(self.var)})
        self.tenants = {slug: TenantAccess(**access) for slug, access in json.loads(printed).items()}

    def start(self) -> None:
        command = ["control_plane.serve", "--port", str(self.port), "--graceful-s", str(self._graceful_s)]
        with self.log.open("ab") as log:
            if "PYTEST_VERSION" in os.environ:
                self.process = ForkedProcess(command, env=self.env, folder=ROOT, log=log)
            else:  # a benchmark measures a process that shares nothing
                command = [sys.executable, "-m", *command]
                self.process = subprocess.Popen(
                    command, env=self.env, cwd=ROOT, stdout=log, stderr=log, start_new_session=True
                )
        eventually(self._answers, START_S, what=f"the web process: {self.output()}")

    def _answers(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.output()
        try:
            return POLLING.get(f"{self.url}/livez").status_code == 200
        except httpx.TransportError:
            return False

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"the web process did not stop:\n{self.output()}") from None
            self.process = None

    def run(self, *command: str) -> str:
        """Run a command as `ForkedProcess` takes it, with the settings of the web process; return what it printed."""
        if "PYTEST_VERSION" in os.environ:
            done = run_forked(command, env=self.env, folder=ROOT)
        else:
            module = [] if command[0] == "-c" else ["-m"]
            done = subprocess.run(
                [sys.executable, *module, *command], env=self.env, cwd=ROOT, check=False, text=True, capture_output=True
            )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def output(self) -> str:
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""

    def query(self, sql: str) -> list[dict[str, Any]]:
        if url := self.installation.get("LORIKEET_DATABASE_URL"):
            with psycopg.connect(url, row_factory=dict_row) as server:
                return server.execute(sql.encode()).fetchall()
        connection = sqlite3.connect(f"file:{self.var / 'lorikeet.sqlite3'}?mode=ro", uri=True, timeout=10)
        try:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(sql)]
        finally:
            connection.close()

    def database_connections(self) -> int:
        """Return the number of database connections that the process has open."""
        if self.installation:
            others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            return int(self.query(f"SELECT count(*) AS held {others}")[0]["held"])
        assert self.process is not None
        folder = Path(f"/proc/{self.process.pid}/fd")
        names = []
        for entry in folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                names.append(entry.readlink().name)
        return names.count("lorikeet.sqlite3")

    def wait_until_ready(self, *names: str, tenant: str = "acme") -> None:
        """Wait until the tenant's models are listed: the worker inside the process stages them."""
        access = self.tenants[tenant]

        def listed() -> bool:
            answer = POLLING.get(f"{self.url}/v1/models", headers=access.bearer)
            return set(names) <= {model["id"] for model in answer.json()["data"]}

        try:
            eventually(listed, 40, what=f"models {names}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output()}") from None
