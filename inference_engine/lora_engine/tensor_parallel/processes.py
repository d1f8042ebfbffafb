"""Linux's calls for processes that belong together: names, ends with the parent, adoption of orphans, stops."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path

# Options of prctl, from linux/prctl.h.
_SET_PARENT_DEATH_SIGNAL = 1
_SET_NAME = 15
_SET_CHILD_SUBREAPER = 36


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when ``parent``, its parent's process id, ends."""
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of all descendants whose parents end, so that this process can wait for their ends."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def name_process(name: str) -> None:
    """Set this process's name in ``ps`` and ``top``; at most 15 characters."""
    _prctl(_SET_NAME, name.encode())


def is_stopped(pid: int) -> bool:
    """Return whether a process stands still because of a signal such as SIGSTOP."""
    return _stat(pid)[:1] == ["T"]


def children(pid: int) -> Iterator[int]:
    """Yield the process ids of the children of a process."""
    for path in Path("/proc").glob("[0-9]*"):
        if _stat(int(path.name))[1:2] == [str(pid)]:
            yield int(path.name)


def _stat(pid: int) -> list[str]:
    """Return the state, the parent's id and the further values of ``/proc/PID/stat``; empty if there is no process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _prctl(option: int, value: int | bytes) -> None:
    argument = ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(value)
    ctypes.CDLL(None).prctl(option, argument, 0, 0, 0)
