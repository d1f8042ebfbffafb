"""Work on what a stranger wrote, in a fork with hard limits on processor time and memory."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

CPU_S = 1
"""Of a processor, for one rendering: a hundred times what the longest templates of models take."""
MEMORY_BYTES = 256 << 20
"""More than the process has when it begins."""
WALL_S = 10.0
_PIECE = 64 << 10


class TooCostlyError(Exception):
    """It ran out of time or memory, or wrote too much."""


def in_limited_fork(work: Callable[[], bytes], *, most_bytes: int) -> bytes:
    """What ``work`` returns. Of a process that is small: a fork copies what it has mapped.

    Raises ``TooCostlyError``, also for an exception of ``work``, which is to catch those that mean something.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, none of which the fork needs
        child = os.fork()
    if not child:
        os.close(reading)
        answer_and_exit(work, lambda data: _write(writing, data))
    os.close(writing)
    try:
        return _read(reading, most_bytes)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)  # unless it has ended
        os.waitpid(child, 0)


def answer_and_exit(work: Callable[[], bytes], answer: Callable[[bytes], object]) -> NoReturn:
    """In the fork: nothing is answered by one that fails or is killed."""
    try:
        limit_resources()
        answer(work())
    except BaseException:
        os._exit(1)
    os._exit(0)


def limit_memory(more_bytes: int) -> None:
    """Let this process take so much more than it has now, for good."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    own, most = resource.getrlimit(resource.RLIMIT_AS)
    allowed = min(limit for limit in (mapped + more_bytes, own, most) if limit != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))


def limit_resources() -> None:
    """Lower this process's limits for good."""
    limit_memory(MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _write(file: int, data: bytes) -> None:
    with open(file, "wb", closefd=False) as pipe:
        pipe.write(data)


def _read(file: int, most_bytes: int) -> bytes:
    until, said = time.monotonic() + WALL_S, bytearray()
    waiting = select.poll()
    waiting.register(file, select.POLLIN)
    while len(said) <= most_bytes and waiting.poll(max(0.0, until - time.monotonic()) * 1000):
        piece = os.read(file, _PIECE)
        if not piece:
            break
        said += piece
    else:
        said.clear()
    if not said:
        raise TooCostlyError
    return bytes(said)


def close_quietly(close: Callable[[], object]) -> None:
    with contextlib.suppress(OSError):
        close()
