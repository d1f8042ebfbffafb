"""The program of an engine with several ranks: what ends it, and what it starts again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

# Each way runs in a fork, as a supervisor adopts orphans and blocks signals for good.
SCRIPT = """
import json
import os
import signal
import sys
import time
from pathlib import Path
from lora_engine.tensor_parallel import supervisor
from lora_engine.tensor_parallel.supervisor import RankSupervisor

folder = Path(sys.argv[1])


def run(way, engine):
    reasons = []
    if pid := os.fork():
        return pid
    starts = folder / f"{way}.starts"

    def counted(serves, again):
        with starts.open("a") as file:
            file.write(f"{os.getpid()}\\\\n")
        start = len(starts.read_text().split())
        assert again == (start > 1)
        return engine(start, serves)

    supervisor.STOPPED_BEATS = 0
    os._exit(RankSupervisor(counted, (folder / f"{way}.reason").write_text).run())


def with_status(status):
    def engine(start, serves):
        serves()
        return status if start == 1 else 0
    return engine


def fails_before_it_serves(start, serves):
    return 70


def fails_always(start, serves):
    serves()
    return 70


def raises(start, serves):
    serves()
    if start == 1:
        raise RuntimeError("a fault of this program")
    return 0


def is_killed_with_a_grandchild(start, serves):
    serves()
    if start == 1:
        if not os.fork():
            if not os.fork():
                (folder / "grandchild").write_text(str(os.getpid()))
                time.sleep(100)
            time.sleep(100)
        while not (folder / "grandchild").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    grandchild = (folder / "grandchild").read_text()
    return 9 if Path(f"/proc/{grandchild}").exists() else 0


def stops_itself(start, serves):
    serves()
    if start == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    return 0


def waits(start, serves):
    serves()
    (folder / "waits").touch()
    time.sleep(100)


def drains(start, serves):
    signal.signal(signal.SIGTERM, lambda *_: os._exit(70))
    serves()
    (folder / "drains").touch()
    time.sleep(100)


ways = {f"status {status}": with_status(status) for status in (0, 1, 2, 70, 75)}
ways |= {engine.__name__: engine for engine in (
    fails_before_it_serves, fails_always, raises, is_killed_with_a_grandchild, stops_itself, waits, drains
)}
pids = {way: run(way, engine) for way, engine in ways.items()}
for way in ("waits", "drains"):
    while not (folder / way).exists():
        time.sleep(0.01)
    os.kill(pids[way], signal.SIGTERM)
ended = {way: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for way, pid in pids.items()}
starts = {way: len((folder / f"{way}.starts").read_text().split()) for way in ways}
reason = (folder / "stops_itself.reason").read_text()
print(json.dumps([ended, starts, reason]))
"""


def test_the_program_starts_failed_ranks_again_and_ends_otherwise(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.replace("\\\\n", "\\n"))
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py"), str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    ended, starts, reason = json.loads(done.stdout)
    assert ended == {
        "status 0": 0,
        "status 1": 0,
        "status 2": 2,
        "status 70": 0,
        "status 75": 75,
        "fails_before_it_serves": 70,
        "fails_always": 70,
        "raises": 0,
        "is_killed_with_a_grandchild": 0,
        "stops_itself": 0,
        "waits": -15,  # the signal ends rank 0, which has not yet a handler
        "drains": 70,
    }
    again = ("status 1", "status 70", "raises", "is_killed_with_a_grandchild", "stops_itself")
    assert {way for way, count in starts.items() if count == 2} == {*again}
    assert {way: count for way, count in starts.items() if count > 2} == {"fails_always": 6}
    assert "was stopped by a signal" in reason
    assert "a fault of this program" in done.stderr
