"""Child processes that check uploads, on the worker's side; `validation_sandbox.py` is their side.

Starting Python and loading the modules takes 150 ms of a processor, most of a small upload's check. So one process of
each worker has loaded them; it has read no upload, and is forked for each.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import NamedTuple

CHILD = "control_plane.adapters.uploads.validation_sandbox"
PIECE = 64 << 10


class CheckCancelledError(RuntimeError):
    """The check was killed by `Child.kill`."""


class Child:
    """A child process that answers one request."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._killed = False

    def ask(self, request: str, wall_s: float) -> subprocess.CompletedProcess[str]:
        """Send the request and return the result.

        Raises TimeoutExpired and CheckCancelledError after the process ended.
        """
        end = time.monotonic() + wall_s
        with self._connection as connection:
            try:
                connection.settimeout(wall_s)
                connection.sendall(request.encode() + b"\n")
                output = bytearray()
                while piece := connection.recv(PIECE):
                    output += piece
                    connection.settimeout(max(end - time.monotonic(), 0.001))
            except TimeoutError:
                raise subprocess.TimeoutExpired(CHILD, wall_s) from None
            except OSError:  # the child ended before it had read the request
                output = bytearray()
        if self._killed:
            raise CheckCancelledError
        return _ended(bytes(output))

    def kill(self) -> None:
        """Kill the child. Thread-safe."""
        self._killed = True
        with contextlib.suppress(OSError):  # the child has ended
            self._connection.shutdown(socket.SHUT_RDWR)


def _ended(output: bytes) -> subprocess.CompletedProcess[str]:
    """Split the output: the answer, and after a NUL, which JSON cannot contain, the exit status and errors."""
    answer, _, ending = output.rpartition(b"\0")
    if not ending:
        return subprocess.CompletedProcess(CHILD, -signal.SIGTERM, "", "The child ended without an answer.")
    how = json.loads(ending)
    return subprocess.CompletedProcess(CHILD, how["returncode"], answer.decode(), how["stderr"])


class _Forker(NamedTuple):
    process: subprocess.Popen[bytes]
    control: socket.socket


_lock = threading.Lock()
_forker: _Forker | None = None


def prepare() -> None:
    """Start the process that is forked for each check, unless it runs. It ends with this process."""
    global _forker
    with _lock:
        if _forker is not None and _forker.process.poll() is not None:
            _forker.control.close()
            _forker = None
        if _forker is None:
            _forker = _start()


def start_child() -> Child:
    prepare()
    ours, theirs = socket.socketpair()
    with theirs, _lock:
        assert _forker is not None
        with contextlib.suppress(OSError):  # the forker has just ended: the child's result is an end without an answer
            socket.send_fds(_forker.control, [b"."], [theirs.fileno()])
    return Child(ours)


def _start() -> _Forker:
    control, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            # -P keeps the working directory off the path; the environment carries no secrets to the child.
            [sys.executable, "-P", "-m", CHILD],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            env={
                "PATH": os.environ.get("PATH", ""),
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "OPENBLAS_NUM_THREADS": "1",
                "LC_ALL": "C.UTF-8",
            },
            # A Ctrl-C in the terminal is for the web process, which then ends this process in order.
            start_new_session=True,
        )
    return _Forker(process, control)
