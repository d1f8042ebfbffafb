"""Untrusted work runs in a fork with hard limits on processor time and memory."""

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

# Seconds of processor time for one rendering: a hundred times what the longest templates of models take.
CPU_S = 1
# Bytes of memory beyond those that the process has when it begins.
MEMORY_BYTES = 256 << 20
# Seconds of wall time for one rendering.
WALL_S = 10.0
_PIECE = 64 << 10


class TooCostlyError(Exception):
    """The work ran out of time or memory, or its output is too large."""


def in_limited_fork(work: Callable[[], bytes], *, most_bytes: int) -> bytes:
    """Run ``work`` in a fork and return its result. Call it from a small process: a fork copies the mappings.

    Raises ``TooCostlyError``, also for an exception of ``work``, which must catch those that have a meaning.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about threads, none of which the fork needs
        child = os.fork()
    if not child:
        os.close(reading)
        answer_and_exit(work, lambda data: _write(writing, data))
    os.close(writing)
    try:
        return _read(reading, most_bytes)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)  # does nothing if it has ended
        os.waitpid(child, 0)


def answer_and_exit(work: Callable[[], bytes], answer: Callable[[bytes], object]) -> NoReturn:
    """Run ``work`` in the fork, answer and exit. A fork that fails or is killed answers nothing."""
    try:
        limit_resources()
        answer(work())
    except BaseException:
        os._exit(1)
    os._exit(0)


def limit_memory(more_bytes: int) -> None:
    """Limit this process's memory to ``more_bytes`` beyond its current size, irreversibly."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    allowed = min(limit for limit in (mapped + more_bytes, soft, hard) if limit != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))


def limit_resources() -> None:
    """Lower this process's limits irreversibly."""
    limit_memory(MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _write(file: int, data: bytes) -> None:
    with open(file, "wb", closefd=False) as pipe:
        pipe.write(data)


def _read(file: int, most_bytes: int) -> bytes:
    until, output = time.monotonic() + WALL_S, bytearray()
    waiting = select.poll()
    waiting.register(file, select.POLLIN)
    while len(output) <= most_bytes and waiting.poll(max(0.0, until - time.monotonic()) * 1000):
        piece = os.read(file, _PIECE)
        if not piece:
            break
        output += piece
    else:
        output.clear()
    if not output:
        raise TooCostlyError
    return bytes(output)


def close_quietly(close: Callable[[], object]) -> None:
    with contextlib.suppress(OSError):
        close()
