"""Password hashing in child processes, with a bound on how many hashes run at once.

One hash takes 46 MiB and a whole core, which is its purpose. So that sign-in attempts of strangers cannot take the
machine's memory, each process runs `LORIKEET_PASSWORD_HASHES` at a time; a few more wait for a moment, and further ones
are refused with Retry-After. `hashing_child.py` runs them with low priority, apart from the threads and the memory of
the event loop that sends all tokens.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from django.contrib.auth.hashers import Argon2PasswordHasher

from control_plane.core.config import current
from control_plane.core.errors import LorikeetError

CHILD = "control_plane.identity.accounts.hashing_child"
WAIT_S = 5.0  # for a free place
# Seconds for one hash, which takes 40 ms of a free core.
ANSWER_S = 10.0
# Requests that wait. Together with the running ones fewer than a process's connections to the database, which they
# occupy.
WAITING = 4


class HashesBusyError(LorikeetError):
    retry_after_s = 2.0

    def __init__(self) -> None:
        super().__init__(
            "sign_in_busy",
            "More people are signing in at this moment than the server can handle.",
            "Try again in a few seconds.",
            status=503,
        )


class HashNotMadeError(LorikeetError):
    retry_after_s = 2.0

    def __init__(self) -> None:
        super().__init__(
            "sign_in_unavailable",
            "The password could not be checked: the process that does so ended or did not answer in time.",
            "Try again in a few seconds. Operators: the machine may be short of memory or of processors.",
            status=503,
        )


class Places:
    """Places for `at_once` running and `waiting` waiting requests; the latter wait for at most `wait_s`."""

    def __init__(self, at_once: int, waiting: int, wait_s: float) -> None:
        self._wait_s = wait_s
        self._present = threading.BoundedSemaphore(at_once + waiting)
        self._running = threading.BoundedSemaphore(at_once)

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Take a place for the block. Raises HashesBusyError."""
        if not self._present.acquire(blocking=False):
            raise HashesBusyError
        try:
            if not self._running.acquire(timeout=self._wait_s):
                raise HashesBusyError
            try:
                yield
            finally:
                self._running.release()
        finally:
            self._present.release()


class HashingChild:
    """A child process that answers one request after another."""

    def __init__(self) -> None:
        self._connection, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                # -P keeps the working directory off the path; the environment carries no secrets to the child.
                [sys.executable, "-P", "-m", CHILD],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env={"PATH": os.environ.get("PATH", ""), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                # A Ctrl-C in the terminal is for the web process. The child keeps the session: Linux shares the
                # processor among sessions first, and within its session the child has the lower priority.
                process_group=0,
            )

    def ask(self, request: dict[str, Any], within_s: float) -> dict[str, Any]:
        """Send a request and return the answer.

        Raises TimeoutError or ConnectionError, after which it must be closed.
        """
        end = time.monotonic() + within_s
        self._connection.settimeout(within_s)
        self._connection.sendall(json.dumps(request).encode() + b"\n")
        received = b""
        while not received.endswith(b"\n"):
            self._connection.settimeout(max(end - time.monotonic(), 0.001))
            if not (piece := self._connection.recv(1024)):
                raise ConnectionError
            received += piece
        answer: dict[str, Any] = json.loads(received)
        return answer

    def close(self) -> None:
        self._connection.close()
        self.process.kill()
        self.process.wait()


class Hashing:
    """The pool of this process's hashing children. Thread-safe."""

    def __init__(self, places: Places, answer_s: float = ANSWER_S) -> None:
        self.places = places
        self._answer_s = answer_s
        self._idle: list[HashingChild] = []

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Have a child answer the request. Raises HashesBusyError and HashNotMadeError."""
        with self.places.one():
            with contextlib.suppress(ConnectionError):
                return self._ask_one(request)
            try:
                return self._ask_one(request)  # another child: the first may have been killed while it was idle
            except ConnectionError:
                raise HashNotMadeError from None

    def _ask_one(self, request: dict[str, Any]) -> dict[str, Any]:
        """Have one child answer. Raises ConnectionError if the child ended, and HashNotMadeError."""
        child = self._take()
        try:
            answer = child.ask(request, self._answer_s)
        except TimeoutError:
            child.close()
            raise HashNotMadeError from None
        except BaseException:
            child.close()
            raise
        self._idle.append(child)
        return answer

    def _take(self) -> HashingChild:
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        try:
            return HashingChild()
        except OSError as error:
            raise HashNotMadeError from error

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


@lru_cache(maxsize=1)
def hashing() -> Hashing:
    """Return the pool of this process."""
    return Hashing(Places(current().password_hashes, WAITING, WAIT_S))


os.register_at_fork(after_in_child=hashing.cache_clear)  # the children belong to the parent process


class BoundedArgon2Hasher(Argon2PasswordHasher):
    """The hasher of every password here: Argon2id in child processes.

    The parameters are the second of OWASP's equivalent sets for Argon2id (46 MiB, one pass, one thread; Password
    Storage
    Cheat Sheet, cheatsheetseries.owasp.org). Django's use eight threads, for which others on the processor wait. An
    older hash contains its parameters: it is checked with them, and replaced when its owner signs in.
    """

    memory_cost = 47_104
    time_cost = 1
    parallelism = 1

    def encode(self, password: str, salt: str) -> str:
        """Hash a password. Raises HashesBusyError and HashNotMadeError."""
        params = self.params()
        cost = {name: getattr(params, name) for name in ("time_cost", "memory_cost", "parallelism", "hash_len")}
        request = {"make": password.encode().hex(), "salt": salt.encode().hex(), "cost": cost}
        return f"{self.algorithm}{_done(hashing().ask(request))['hash']}"

    def verify(self, password: str, encoded: str) -> bool:
        """Check a password against a hash. Raises HashesBusyError and HashNotMadeError."""
        _, _, against = encoded.partition("$")
        answer = hashing().ask({"check": password.encode().hex(), "against": f"${against}"})
        return bool(_done(answer)["right"])


def _done(answer: dict[str, Any]) -> dict[str, Any]:
    if "problem" in answer:
        raise ValueError(f"A password hash could not be made or checked: {answer['problem']}")
    return answer
