"""The product as `make run` starts it: the supervisor, the web process, the engine, in a folder of their own."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from lorikeet_testing.web import free_port, migrated_folder
from scripts.launch.supervisor import migrated_stamp

ROOT = Path(__file__).resolve().parents[3]
LOOPBACK = "0100007F"  # 127.0.0.1 in /proc/net/tcp on a little-endian machine
_LISTENS = "0A"
START_S = 120.0
STOP_S = 25.0


@dataclass(frozen=True)
class Access:
    """The URL, account and key that the start banner prints."""

    url: str
    email: str
    password: str
    key: str
    tenant: str

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


class Launched:
    """A run of scripts/run.py. Use `start`, then `access`, and always `stop`."""

    def __init__(self, var: Path, port: int, env: Mapping[str, str] | None = None, *, migrated: bool = False) -> None:
        """`migrated`: find a database without rows, as after a first start. To migrate takes four seconds."""
        if migrated:
            shutil.copytree(migrated_folder(), var)
            (var / "run").mkdir(exist_ok=True)
            migrated_stamp(var, "").write()
        self.var = var
        self.port = port
        self.lines: list[str] = []
        self.started_in_s = 0.0
        settings = {"LORIKEET_VAR_DIR": str(var), "PORT": str(port), "HYBRID": "0"}
        self._env = {**_without_settings(os.environ), **settings, **(env or {})}
        self._queue: queue.Queue[str | None] = queue.Queue()
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> Access:
        """Start and wait for the banner. Raises AssertionError with everything printed when it does not come."""
        began = time.monotonic()
        self.launch()
        self.wait_for("Ctrl-C stops it", START_S)
        self.started_in_s = time.monotonic() - began
        return self.access()

    def launch(self) -> subprocess.Popen[str]:
        # A separate group, so that a signal to the test's group does not reach the product.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "scripts.run"], cwd=ROOT, env=self._env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()
        return self.process

    def access(self) -> Access:
        text = self.output
        email, password = self._field("Login").split("  ·  ")
        assert "curl " in text
        key, tenant = self._field("API key").split("  ·  of the tenant ")
        return Access(self._field("Console"), email, password, key, tenant)

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, text: str, limit_s: float) -> str:
        """The first line not yet waited for that holds `text`."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            try:
                line = self._queue.get(timeout=0.2)
            except queue.Empty:
                continue
            assert line is not None, f"It ended before the line came:\n{self.output}"
            if text in line:
                return line
        raise AssertionError(f"No line with {text!r} in {limit_s} s:\n{self.output}\n{self.logs()}")

    def logs(self) -> str:
        """The end of each log file, for the report of a failed test."""
        files = sorted((self.var / "log").glob("*.log"))
        return "\n".join(f"── {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in files)

    def child_pid(self, name: str) -> int:
        """Process id of "engine" (that of the first model) or "web", by its command line."""
        marker = {"engine": "engine.sock", "web": "control_plane.serve"}[name]
        return next(pid for pid, command in self.children().items() if marker in command and "hybrid" not in command)

    def children(self) -> dict[int, str]:
        """Running processes whose command or settings point into this run's data folder."""
        commands = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) != os.getpid():
                command = _read_proc(folder / "cmdline")
                if command and f"LORIKEET_VAR_DIR={self.var}\n" in _read_proc(folder / "environ"):
                    commands[int(folder.name)] = command.replace("\n", " ")
        return commands

    def listening_addresses(self) -> set[str]:
        """Return the TCP addresses that its processes listen on, as the kernel writes them: hexadecimal, without the
        port.
        """
        addresses = set()
        for pid in self.children():
            descriptors = _links(Path(f"/proc/{pid}/fd"))
            for table in ("tcp", "tcp6"):
                for line in _read_proc(Path(f"/proc/{pid}/net/{table}")).splitlines()[1:]:
                    fields = line.split()
                    if fields[3] == _LISTENS and f"socket:[{fields[9]}]" in descriptors:
                        addresses.add(fields[1].partition(":")[0])
        return addresses

    def stop(self, how: signal.Signals = signal.SIGINT) -> int:
        """Send `how`, wait, and return the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"It did not stop in {STOP_S} s:\n{self.output}") from None

    def _field(self, name: str) -> str:
        match = re.search(rf"^    {name} +(.+)$", self.output, re.MULTILINE)
        assert match, f"{name} is not in the banner:\n{self.output}"
        return match.group(1)

    def _read(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        with self.process.stdout as out:
            for line in out:
                self.lines.append(line.rstrip("\n"))
                self._queue.put(line)
        self._queue.put(None)


def _links(folder: Path) -> set[str]:
    targets = set()
    with contextlib.suppress(OSError):  # the process has ended
        for entry in folder.iterdir():
            with contextlib.suppress(OSError):
                targets.add(str(entry.readlink()))
    return targets


def _read_proc(path: Path) -> str:
    try:
        return path.read_bytes().replace(b"\0", b"\n").decode(errors="replace")
    except OSError:
        return ""


def _without_settings(env: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment without what would configure the product."""
    product = {"PORT", "HOST", "MODEL", "MODEL_NAME", "DEVICE", "DTYPE", "THREADS", "POOL_MB", "HOST_ARENA_MB"}
    return {name: value for name, value in env.items() if not name.startswith("LORIKEET_") and name not in product}


_SHARED = pytest.StashKey[Launched]()
SMALL_UPLOADS = {"LORIKEET_UPLOAD_MAX_BYTES": str(64 << 20)}


def shared(config: pytest.Config, folders: pytest.TempPathFactory) -> Launched:
    """Return the platform that all tests of this process share, started on first use. Tests must leave it serving."""
    if _SHARED not in config.stash:
        platform = Launched(folders.mktemp("platform") / "var", free_port(), SMALL_UPLOADS, migrated=True)
        config.stash[_SHARED] = platform

        def stop() -> None:
            platform.stop()

        config.add_cleanup(stop)
        platform.start()
    return config.stash[_SHARED]
