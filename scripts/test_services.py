"""Temporary PostgreSQL and Redis servers for tests, in new folders and on free ports.

    python -m scripts.test_services -- pytest tests/platform

runs the command with LORIKEET_TEST_DATABASE_URL and LORIKEET_TEST_REDIS_URL set. The machine's running PostgreSQL or
Redis is not touched; only their programs are used.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.launch.system import postgres_binaries

# Seconds in which a server has to start.
START_S = 30.0
# Databases of Redis: one for each installation that tests make, so that none gets tasks of another.
REDIS_DATABASES = 1000
# Settings without waiting for the disk: a test database may be lost in a power cut.
POSTGRES_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
}


@dataclass(frozen=True)
class Services:
    """The addresses of the running servers."""

    database_url: str
    redis_url: str

    def environment(self) -> dict[str, str]:
        return {"LORIKEET_TEST_DATABASE_URL": self.database_url, "LORIKEET_TEST_REDIS_URL": self.redis_url}


class ServiceError(RuntimeError):
    """A service is missing or did not start; the text says what to do."""


@contextmanager
def services(**settings: str) -> Iterator[Services]:
    """Run both servers while the block runs. `settings` are PostgreSQL's."""
    with server_folder() as root, postgres(root / "postgres", **settings) as database, redis(root / "redis") as queue:
        yield Services(database.url, queue.url)


@contextmanager
def server_folder() -> Iterator[Path]:
    """Make a folder that the account of PostgreSQL can enter, which it cannot with pytest's folders."""
    with tempfile.TemporaryDirectory(prefix="lorikeet-services-") as folder:
        root = Path(folder)
        root.chmod(0o711)
        yield root


class Server:
    """A server with its folder and port. It can be killed and started again with the files that it wrote."""

    url: str
    stop_signal: signal.Signals

    def __init__(self, folder: Path, account: str) -> None:
        folder.mkdir()
        if account:
            shutil.chown(folder, account)
        self.folder, self.port, self._account = folder, free_port(), account
        self._run = _Runner(account, folder)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder / f"{type(self).__name__.lower()}.log"

    def start(self) -> None:
        """Start the server and wait until it accepts clients. Raises ServiceError."""
        self._process = self._run.spawn(*self.command(), log=self.log.name)
        _wait_until(self._process, self.is_ready, self.log)

    def command(self) -> Sequence[object]:
        raise NotImplementedError

    def is_ready(self) -> bool:
        raise NotImplementedError

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Stop the server if it runs."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(self.stop_signal)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()


class Postgres(Server):
    """A PostgreSQL server; after `create` it has an empty database `lorikeet`."""

    stop_signal = signal.SIGINT  # PostgreSQL's fast shutdown, which does not wait for clients

    def __init__(self, folder: Path, **settings: str) -> None:
        binaries = postgres_binaries()
        if binaries is None:
            raise ServiceError("PostgreSQL is missing. Install it: apt install postgresql, or brew install postgresql.")
        self._binaries, self._settings = binaries, {**POSTGRES_SETTINGS, **settings}
        self._password = secrets.token_hex(16)
        super().__init__(folder, _unprivileged_account())
        self.url = f"postgres://lorikeet:{self._password}@127.0.0.1:{self.port}/lorikeet"

    def create(self) -> None:
        """Make the server's files, start it, and make its database."""
        secret = self.folder / "password"
        secret.write_text(self._password)
        if self._account:
            shutil.chown(secret, self._account)
        self._run(
            self._binaries / "initdb", "--pgdata", self.folder / "data", "--username", "lorikeet", "--pwfile", secret,
            "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync",
        )  # fmt: skip
        self.start()
        self._run(
            self._binaries / "createdb", "-h", self.folder, "-p", self.port, "-U", "lorikeet", "lorikeet",
            PGPASSWORD=self._password,
        )  # fmt: skip

    def command(self) -> Sequence[object]:
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        return [
            self._binaries / "postgres", "-D", self.folder / "data", "-h", "127.0.0.1", "-p", self.port,
            "-k", self.folder, *options,
        ]  # fmt: skip

    def is_ready(self) -> bool:
        """Return whether the server accepts clients; it listens before that."""
        command = [self._binaries / "pg_isready", "--quiet", "-h", self.folder, "-p", self.port]
        return subprocess.call([str(part) for part in command]) == 0


class Redis(Server):
    """A Redis server, which writes nothing to the disk unless `options` say so."""

    stop_signal = signal.SIGTERM

    def __init__(self, folder: Path, *options: str) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise ServiceError("redis-server is missing. Install it: apt install redis-server, or brew install redis.")
        self._program, self._options = program, options
        self._password = secrets.token_hex(16)
        super().__init__(folder, "")
        self.url = f"redis://:{self._password}@127.0.0.1:{self.port}/0"

    def command(self) -> Sequence[object]:
        return [
            self._program, "--bind", "127.0.0.1", "--port", self.port, "--requirepass", self._password,
            "--databases", REDIS_DATABASES, "--save", "", "--appendonly", "no", "--dir", self.folder, *self._options,
        ]  # fmt: skip

    def is_ready(self) -> bool:
        return _accepts(self.port)


@contextmanager
def postgres(folder: Path, **settings: str) -> Iterator[Postgres]:
    """Run a server while the block runs."""
    server = Postgres(folder, **settings)
    try:
        server.create()
        yield server
    finally:
        server.stop()


@contextmanager
def redis(folder: Path, *options: str) -> Iterator[Redis]:
    """Run a server while the block runs."""
    server = Redis(folder, *options)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _unprivileged_account() -> str:
    """Return the account for PostgreSQL, which refuses to run as root; "" for the present user."""
    if os.geteuid() != 0:
        return ""
    accounts = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in accounts else "nobody"


class _Runner:
    """A runner of programs in a folder, as an account if it is not "", with an environment that holds no secrets."""

    def __init__(self, account: str, folder: Path) -> None:
        self.folder = folder
        entry = pwd.getpwnam(account) if account else None
        self.user = entry.pw_uid if entry else None
        self.group = entry.pw_gid if entry else None
        self.groups: list[int] | None = [] if entry else None

    def __call__(self, *command: object, **env: str) -> None:
        done = subprocess.run(
            [str(part) for part in command], user=self.user, group=self.group, extra_groups=self.groups,
            cwd=self.folder, env={**_plain_environment(), **env}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise ServiceError(f"{Path(str(command[0])).name} failed: {done.stderr.strip() or done.stdout.strip()}")

    def spawn(self, *command: object, log: str) -> subprocess.Popen[bytes]:
        with (self.folder / log).open("wb") as out:
            return subprocess.Popen(
                [str(part) for part in command], user=self.user, group=self.group,
                extra_groups=self.groups, cwd=self.folder, env=_plain_environment(), stdin=subprocess.DEVNULL,
                stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip


def _plain_environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def _wait_until(server: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path) -> None:
    end = time.monotonic() + START_S
    while not ready():
        if server.poll() is not None or time.monotonic() > end:
            raise ServiceError(f"{log.stem} did not start:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def stop_servers_on_sigterm() -> None:
    """Make SIGTERM end this process as ^C does; otherwise the servers would stay."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def run_with_services(command: Sequence[str], env: Mapping[str, str]) -> int:
    with services() as running:
        return subprocess.call(command, env={**env, **running.environment()})


def main() -> int:
    command = sys.argv[2:] if sys.argv[1:2] == ["--"] else sys.argv[1:]
    if not command:
        print(__doc__)
        return 2
    stop_servers_on_sigterm()
    try:
        return run_with_services(command, os.environ)
    except ServiceError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
