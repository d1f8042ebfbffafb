"""Child processes: each in its own process group, with a log file, and none left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

KEEP_LOG_BYTES = 5 << 20


class Undertaker:
    """Ends our children's process groups when this process dies without a chance to do it.

    A separate process holds the read end of a pipe and a list of groups. When
    the pipe closes, whatever the reason (also `kill -9`), it ends the groups
    still on its list. This works wherever there are pipes; Linux's
    PR_SET_PDEATHSIG would reach direct children only.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", __file__], stdin=subprocess.PIPE, start_new_session=True
        )

    def watch(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def dismiss(self) -> None:
        """Let it end; every group should have been forgotten by now."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # someone killed it: we still end our children ourselves
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()


class Child:
    """One process of the platform. `start` may be called again after it ended."""

    def __init__(
        self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path, undertaker: Undertaker
    ) -> None:
        self.name = name
        self.command = list(command)
        self.env = dict(env)
        self.log = log
        self.started_at = 0.0
        self._undertaker = undertaker
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        _rotate(self.log)
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                self.command, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        self._undertaker.watch(self._process.pid)
        self.started_at = time.monotonic()

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def exit_code(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        return self._process.poll() if self._process else None

    def how_it_ended(self) -> str:
        code = self.exit_code()
        if code is not None and code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with code {code}"

    def ask_to_stop(self) -> None:
        self._signal(signal.SIGTERM)

    def wait_or_kill(self, deadline: float) -> bool:
        """True if it ended by itself before `deadline` (monotonic seconds); else its group is killed."""
        if self._process is None:
            return True
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
            in_time = True
        except subprocess.TimeoutExpired:
            in_time = False
        self.bury()
        return in_time

    def bury(self) -> None:
        """End whatever is left of its group, and stop watching it."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._undertaker.forget(self._process.pid)
            self._process = None

    def log_tail(self, lines: int = 15) -> str:
        text = self.log.read_bytes()[-20_000:].decode(errors="replace") if self.log.exists() else ""
        return "\n".join(f"    {line}" for line in text.strip().splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def _rotate(log: Path) -> None:
    """Keep one older file, so that logs of a machine that runs for months stay small."""
    if log.exists() and log.stat().st_size > KEEP_LOG_BYTES:
        log.replace(log.with_suffix(".old.log"))


def _undertaker_main() -> None:
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
    _undertaker_main()
