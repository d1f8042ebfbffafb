"""The supervisor of an engine with several ranks, which starts all of them again when one is lost.

The engine's program is then the supervisor, and rank 0 a fork of it. The supervisor has imported all that a rank needs,
has no other thread and never uses a device. So the next ranks begin to load the model at once, instead of after seconds
of imports. Whatever else ends an engine ends the program as well, whose own supervisor (systemd, Docker, Kubernetes)
decides what comes next: a stop, a requested restart, an engine that could not start, one that is lost again and again.
"""

from __future__ import annotations

import gc
import logging
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from .processes import adopt_orphans, children, end_with_parent, is_stopped, name_process
from .stillness import BEAT_S, STOPPED_BEATS

log = logging.getLogger(__name__)

# Restarts in a row, each of an engine that lived less than ``_HEALTHY_S`` seconds, after which the program ends: its
# own supervisor makes longer and longer pauses.
_MAX_RESTARTS = 5
_HEALTHY_S = 60.0
# Seconds for killed processes to end. A process within a call of a device's driver ends after that call.
_END_S = 30.0
# Exit statuses with which rank 0 ends because of a failure of the running engine: it reported one, or a rank or step
# hung or failed. After others, such as 2 (it could not start) and 75 (a requested restart), the program ends.
_FAILURES = frozenset({1, 70})
# Signals that stop the engine.
_STOPS = frozenset({signal.SIGTERM, signal.SIGINT})
_WATCHED = frozenset({*_STOPS, signal.SIGCHLD})


class RankSupervisor:
    """A loop that runs ``engine`` in a forked process, again and again. Create it in a process with one thread."""

    def __init__(self, engine: Callable[[Callable[[], None], bool], int], on_end: Callable[[str], None]) -> None:
        """Create the supervisor. ``engine`` runs rank 0, which starts the others, and returns the exit status; it calls
        its first argument when it serves requests; the second is whether ranks have served before. ``on_end`` gets the
        reason before this process kills rank 0.
        """
        self._engine, self._on_end = engine, on_end
        self._stopping = False
        self._served = mmap.mmap(-1, 1)  # shared with rank 0, which writes 1 when it serves requests

    def run(self) -> int:
        """Return the exit status of the last engine. If a signal ended it, the same signal ends this process."""
        adopt_orphans()
        gc.freeze()  # otherwise collections in the forks would copy the pages of all objects
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        restarts, again = 0, False
        while True:
            began = time.monotonic()
            self._served[0] = 0
            status = os.waitstatus_to_exitcode(self._wait(self._start(again)))
            self._end_others()
            restarts = 0 if time.monotonic() - began > _HEALTHY_S else restarts + 1
            if not self._starts_again(status) or restarts > _MAX_RESTARTS:
                return status if status >= 0 else _end_by(-status)
            again = True
            log.warning("all ranks start again, as rank 0 ended with status %d", status)

    def _starts_again(self, status: int) -> bool:
        """Return whether a failure ended an engine that had served requests; ``status`` is negative for a signal."""
        stops = self._stopping or signal.sigpending() & _STOPS
        return not stops and bool(self._served[0]) and (status < 0 or status in _FAILURES)

    def _serves(self) -> None:
        self._served[0] = 1

    def _start(self, again: bool) -> int:
        """Fork rank 0 and return its process id."""
        supervisor = os.getpid()
        if rank := os.fork():
            return rank
        status = 1
        try:
            end_with_parent(supervisor)
            os.setpgid(0, 0)  # a group of all ranks: a terminal's Ctrl-C reaches rank 0 once, through the supervisor
            name_process("lora-rank-0")
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
            status = self._engine(self._serves, again)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            logging.shutdown()
            sys.stdout.flush()
            os._exit(status)

    def _wait(self, rank: int) -> int:
        """Pass signals on to rank 0 until it ends; return its wait status. Kill it if it is stopped for some beats."""
        still = 0
        while True:
            received = signal.sigtimedwait(_WATCHED, BEAT_S)
            if received is None:
                still = still + 1 if is_stopped(rank) else 0
                if still > STOPPED_BEATS:
                    reason = f"rank 0 (process {rank}) was stopped by a signal for {STOPPED_BEATS * BEAT_S:.0f} s"
                    self._on_end(reason)
                    log.critical("%s; the supervisor kills all ranks", reason)
                    os.killpg(rank, signal.SIGKILL)
            elif received.si_signo in _STOPS:
                self._stopping = True
                os.kill(rank, received.si_signo)
            pid = -1
            while pid:
                pid, status = os.waitpid(-1, os.WNOHANG)  # orphans of rank 0's children end too
                if pid == rank:
                    return status

    def _end_others(self) -> None:
        """Kill all processes that rank 0 started, and wait for their ends: only then are devices and locks free."""
        deadline = time.monotonic() + _END_S
        while time.monotonic() < deadline:
            for pid in children(os.getpid()):
                os.kill(pid, signal.SIGKILL)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            signal.sigtimedwait({signal.SIGCHLD}, 0.02)
        log.critical("processes of the engine did not end within %.0f s after they were killed", _END_S)
        self._stopping = True


def _end_by(number: int) -> NoReturn:
    """End this process by a signal."""
    logging.shutdown()
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # a signal that is ignored
