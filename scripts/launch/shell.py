"""Commands whose output goes to a log file."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from scripts.launch.paths import var_dir


def log_dir() -> Path:
    folder = var_dir() / "log"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class CommandFailed(Exception):
    """The failure of a command. `output` is everything that it printed."""

    def __init__(self, command: Sequence[str], code: int, output: str) -> None:
        super().__init__(f"{' '.join(command)} ended with code {code}")
        self.output = output

    def tail(self, lines: int = 12) -> str:
        return "\n".join(self.output.strip().splitlines()[-lines:])


def run_logged(
    log_name: str, command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> str:
    """Run a command and return its output, which is also added to var/log/<log_name>.log. Raises CommandFailed.

    Commands that run at the same time need different logs.
    """
    log = log_dir() / f"{log_name}.log"
    with log.open("a") as out:
        out.write(f"\n$ {' '.join(command)}   ({datetime.now().isoformat(timespec='seconds')})\n")
        out.flush()
        start = out.tell()
        code = subprocess.call(
            command, cwd=cwd, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    with log.open(errors="replace") as written:
        written.seek(start)
        output = written.read()
    if code != 0:
        raise CommandFailed(command, code, output)
    return output
