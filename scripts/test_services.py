"""Throw-away PostgreSQL and Redis for tests: own folders, own ports, gone afterwards.

    python scripts/test_services.py -- pytest tests/platform

runs the command with LORIKEET_TEST_DATABASE_URL and LORIKEET_TEST_REDIS_URL set.
Nothing of the machine's own PostgreSQL or Redis is touched; only their programs are used.
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

from launch.system import postgres_binaries

START_S = 30.0
# One for each installation that the tests make, so that none finds another's tasks in its queue.
REDIS_DATABASES = 1000
# A test database may be lost in a power cut: no waiting for the disk.
POSTGRES_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
}


@dataclass(frozen=True)
class Services:
    database_url: str
    redis_url: str

    def environment(self) -> dict[str, str]:
        return {"LORIKEET_TEST_DATABASE_URL": self.database_url, "LORIKEET_TEST_REDIS_URL": self.redis_url}


class ServiceError(RuntimeError):
    """A service is missing or did not start; the text says what to do."""


@contextmanager
def services() -> Iterator[Services]:
    """Both servers, for as long as the block runs."""
    with tempfile.TemporaryDirectory(prefix="lorikeet-services-") as folder:
        root = Path(folder)
        root.chmod(0o711)  # the account that runs PostgreSQL must be able to pass through
        with postgres(root / "postgres") as database_url, redis(root / "redis") as redis_url:
            yield Services(database_url, redis_url)


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A PostgreSQL server with an empty database `lorikeet`; yields its URL."""
    binaries = postgres_binaries()
    if binaries is None:
        raise ServiceError("PostgreSQL is missing. Install it: apt install postgresql, or brew install postgresql.")
    account = _unprivileged_account()
    folder.mkdir()
    password, secret = secrets.token_hex(16), folder / "password"
    secret.write_text(password)
    if account:
        for path in (folder, secret):
            shutil.chown(path, account)
    data, run = folder / "data", _Runner(account, folder)
    run(binaries / "initdb", "--pgdata", data, "--username", "lorikeet", "--pwfile", secret,
        "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync")  # fmt: skip
    port, options = free_port(), [f"--{name}={value}" for name, value in POSTGRES_SETTINGS.items()]
    server = run.spawn(
        binaries / "postgres", "-D", data, "-h", "127.0.0.1", "-p", port, "-k", folder, *options, log="postgres.log"
    )
    # SIGINT is PostgreSQL's fast shutdown: it does not wait for clients.
    with _stopped_afterwards(server, signal.SIGINT):
        # It listens before it lets anybody in.
        ready = [str(binaries / "pg_isready"), "--quiet", "-h", str(folder), "-p", str(port)]
        _wait_until(server, lambda: subprocess.call(ready) == 0, folder / "postgres.log")
        run(binaries / "createdb", "-h", folder, "-p", port, "-U", "lorikeet", "lorikeet", PGPASSWORD=password)
        yield f"postgres://lorikeet:{password}@127.0.0.1:{port}/lorikeet"


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    """A Redis server that keeps nothing on disk; yields its URL."""
    program = shutil.which("redis-server")
    if program is None:
        raise ServiceError("redis-server is missing. Install it: apt install redis-server, or brew install redis.")
    folder.mkdir()
    port, password = free_port(), secrets.token_hex(16)
    run = _Runner("", folder)
    server = run.spawn(
        program, "--bind", "127.0.0.1", "--port", port, "--requirepass", password, "--databases", REDIS_DATABASES,
        "--save", "", "--appendonly", "no", "--dir", folder, log="redis.log",
    )  # fmt: skip
    with _stopped_afterwards(server, signal.SIGTERM):
        _wait_until(server, lambda: _accepts(port), folder / "redis.log")
        yield f"redis://:{password}@127.0.0.1:{port}/0"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _unprivileged_account() -> str:
    """Who runs PostgreSQL, which refuses to run as root: "" for the present user."""
    if os.geteuid() != 0:
        return ""
    accounts = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in accounts else "nobody"


class _Runner:
    """Runs programs in `folder`, as `account` when one is given, with an environment that says nothing of ours."""

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


@contextmanager
def _stopped_afterwards(server: subprocess.Popen[bytes], how: signal.Signals) -> Iterator[None]:
    try:
        yield
    finally:
        server.send_signal(how)
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


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


def run_with_services(command: Sequence[str], env: Mapping[str, str]) -> int:
    with services() as running:
        return subprocess.call(command, env={**env, **running.environment()})


def main() -> int:
    command = sys.argv[2:] if sys.argv[1:2] == ["--"] else sys.argv[1:]
    if not command:
        print(__doc__)
        return 2
    try:
        return run_with_services(command, os.environ)
    except ServiceError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
