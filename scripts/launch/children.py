"""Child processes, each with its process group and log file. None survives this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

# Bytes of a log above which the next start begins a new file.
MAX_LOG_BYTES = 5 << 20


class Reaper:
    """A process that ends the process groups of the children if this process dies, also by `kill -9`.

    It holds the read end of a pipe and a list of groups. When the pipe closes, it ends the groups that are still on its
    list. This works wherever there are pipes; Linux's PR_SET_PDEATHSIG would reach direct children only.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", __file__], stdin=subprocess.PIPE, start_new_session=True
        )

    def watch(self, group: int) -> None:
        self._send(f"+{group}\n")

    def forget(self, group: int) -> None:
        self._send(f"-{group}\n")

    def close(self) -> None:
        """End the process. Groups that are still on its list are ended too."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # somebody killed it; this process still ends its children itself
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()


class Child:
    """A process of the platform, which `start` starts again after it ended."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path, reaper: Reaper) -> None:
        self.name = name
        self.command = list(command)
        self.env = dict(env)
        self.log = log
        self.started_at = 0.0
        self._reaper = reaper
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        _rotate(self.log)
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                self.command, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        self._reaper.watch(self._process.pid)
        self.started_at = time.monotonic()

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def exit_code(self) -> int | None:
        """Return the exit code: None while the process runs, negative for the signal that ended it."""
        return self._process.poll() if self._process else None

    def exit_description(self) -> str:
        code = self.exit_code()
        if code is not None and code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with code {code}"

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def wait_or_kill(self, deadline: float) -> bool:
        """Kill the group unless it ends before `deadline` (monotonic seconds). Returns whether it did."""
        if self._process is None:
            return True
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
            in_time = True
        except subprocess.TimeoutExpired:
            in_time = False
        self.reap()
        return in_time

    def reap(self) -> None:
        """Kill what is left of the group, and take it off the reaper's list."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._reaper.forget(self._process.pid)
            self._process = None

    def log_tail(self, lines: int = 15) -> str:
        text = self.log.read_bytes()[-20_000:].decode(errors="replace") if self.log.exists() else ""
        return "\n".join(f"    {line}" for line in text.strip().splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def _rotate(log: Path) -> None:
    """Keep one older file, so that the logs of a machine that runs for months stay small."""
    if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
        log.replace(log.with_suffix(".old.log"))


def _reaper_main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        (groups.add if line.startswith(b"+") else groups.discard)(int(line[1:]))
    for number, grace in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 0.0)):
        for group in groups:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)
        end = time.monotonic() + grace
        while time.monotonic() < end and any(_exists(group) for group in groups):
            time.sleep(0.1)


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False
    return True


if __name__ == "__main__":
    _reaper_main()
