"""Child processes: stopped in time, killed when deaf, never orphaned."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.launch.children import Child, Reaper

ROOT = Path(__file__).parents[2]
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"


def eventually(condition: Callable[[], bool], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie that nobody has collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def reaper() -> Iterator[Reaper]:
    made = Reaper()
    yield made
    made.close()


def child(reaper: Reaper, tmp_path: Path, code: str) -> Child:
    return Child("sleeper", [sys.executable, "-c", code], os.environ, tmp_path / "child.log", reaper)


def test_a_polite_child_stops_when_asked(reaper: Reaper, tmp_path: Path) -> None:
    sleeper = child(reaper, tmp_path, "import time; print('here', flush=True); time.sleep(60)")
    sleeper.start()
    assert eventually(lambda: "here" in sleeper.log_tail())
    sleeper.terminate()
    assert sleeper.wait_or_kill(time.monotonic() + 5)


def test_a_deaf_child_is_killed(reaper: Reaper, tmp_path: Path) -> None:
    deaf = child(reaper, tmp_path, DEAF)
    deaf.start()
    pid = deaf.pid
    assert eventually(lambda: "deaf" in deaf.log_tail())
    deaf.terminate()
    assert not deaf.wait_or_kill(time.monotonic() + 0.2)
    assert not alive(pid)


def test_exit_description_names_the_signal_or_the_code(reaper: Reaper, tmp_path: Path) -> None:
    killed = child(reaper, tmp_path, "import time; time.sleep(60)")
    killed.start()
    os.kill(killed.pid, signal.SIGKILL)
    assert eventually(lambda: killed.exit_code() is not None)
    assert killed.exit_description() == "was ended by SIGKILL"
    killed.reap()
    failed = child(reaper, tmp_path, "raise SystemExit(3)")
    failed.start()
    assert eventually(lambda: failed.exit_code() is not None)
    assert failed.exit_description() == "ended with code 3"
    failed.reap()


def test_a_killed_supervisor_leaves_no_orphans(tmp_path: Path) -> None:
    """Even children of children, and even those that ignore SIGTERM."""
    log = tmp_path / "outer.log"
    outer_code = (
        "import subprocess, sys\n"
        f"inner = subprocess.Popen([sys.executable, '-c', {DEAF!r}])\n"
        "print(inner.pid, flush=True)\n"
        "inner.wait()\n"
    )
    supervisor = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from scripts.launch.children import Child, Reaper\n"
        f"command = [sys.executable, '-c', {outer_code!r}]\n"
        f"made = Child('outer', command, os.environ, Path({str(log)!r}), Reaper())\n"
        "made.start()\n"
        "print(made.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", supervisor], stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    outer = int(process.stdout.readline())
    # Two processes write it, in either order.
    assert eventually(lambda: log.exists() and len(log.read_text().split()) == 2)
    inner = next(int(word) for word in log.read_text().split() if word != "deaf")
    process.kill()
    process.wait()
    process.stdout.close()
    assert eventually(lambda: not alive(outer) and not alive(inner), seconds=15)


def test_a_long_log_is_put_aside(reaper: Reaper, tmp_path: Path) -> None:
    log = tmp_path / "child.log"
    log.write_bytes(b"x" * (6 << 20))
    quick = child(reaper, tmp_path, "print('new')")
    quick.start()
    assert eventually(lambda: quick.exit_code() is not None)
    assert log.read_text() == "new\n"
    assert (tmp_path / "child.old.log").stat().st_size == 6 << 20
    quick.reap()
