"""Password hashing, with a bound on how many run at once, in processes of their own.

One takes 46 MiB and all that a core can do, which is its purpose. So that strangers who try to sign in cannot take the
machine's memory, each process has `LORIKEET_PASSWORD_HASHES` made at a time; a few more wait for a moment, and who
comes beyond these is told to come again. `hashing_child.py` makes them, which gives way to everything else: the event
loop that sends everybody's tokens shares neither its threads nor its memory with them.
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
WAIT_S = 5.0
ANSWER_S = 10.0
"""A hash takes 40 ms of a core that nobody else wants."""
WAITING = 4
"""Together with those that run fewer than a process has connections to its database, which waiting requests hold."""


class HashesBusyError(LorikeetError):
    retry_after_s = 2.0

    def __init__(self) -> None:
        super().__init__(
            "sign_in_busy",
            "More people sign in at this moment than the server takes at once.",
            "Try again in a few seconds.",
            status=503,
        )


class HashNotMadeError(LorikeetError):
    retry_after_s = 2.0

    def __init__(self) -> None:
        super().__init__(
            "sign_in_unavailable",
            "The password could not be looked at: the process that does so ended or did not answer in time.",
            "Try again in a few seconds. Operators: the machine may be short of memory or of processors.",
            status=503,
        )


class Places:
    """Room for `at_once` that run and `waiting` that wait for at most `wait_s`."""

    def __init__(self, at_once: int, waiting: int, wait_s: float) -> None:
        self._wait_s = wait_s
        self._present = threading.BoundedSemaphore(at_once + waiting)
        self._running = threading.BoundedSemaphore(at_once)

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Raises HashesBusyError."""
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
    """A process that answers one request after the other."""

    def __init__(self) -> None:
        self._connection, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                # -P keeps the working directory off the path; the environment carries no secrets to the child.
                [sys.executable, "-P", "-m", CHILD],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env={"PATH": os.environ.get("PATH", ""), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                # A Ctrl-C in the terminal is for the web process. Not a session of its own: Linux shares the processor
                # among sessions first, and this is to give way to those of the web process's.
                process_group=0,
            )

    def ask(self, request: dict[str, Any], within_s: float) -> dict[str, Any]:
        """Raises OSError, after which it must be closed: TimeoutError, or ConnectionError if it ended."""
        end = time.monotonic() + within_s
        self._connection.settimeout(within_s)
        self._connection.sendall(json.dumps(request).encode() + b"\n")
        said = b""
        while not said.endswith(b"\n"):
            self._connection.settimeout(max(end - time.monotonic(), 0.001))
            if not (piece := self._connection.recv(1024)):
                raise ConnectionError
            said += piece
        answer: dict[str, Any] = json.loads(said)
        return answer

    def close(self) -> None:
        self._connection.close()
        self.process.kill()
        self.process.wait()


class Hashing:
    """The hashes of this process. Thread-safe."""

    def __init__(self, places: Places, answer_s: float = ANSWER_S) -> None:
        self.places = places
        self._answer_s = answer_s
        self._idle: list[HashingChild] = []

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Raises HashesBusyError and HashNotMadeError."""
        with self.places.one():
            with contextlib.suppress(ConnectionError):
                return self._ask_one(request)
            try:
                return self._ask_one(request)  # of another child: the first may have been killed while it was idle
            except ConnectionError:
                raise HashNotMadeError from None

    def _ask_one(self, request: dict[str, Any]) -> dict[str, Any]:
        """Raises ConnectionError if the child ended, and HashNotMadeError."""
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
    """Of this process."""
    return Hashing(Places(current().password_hashes, WAITING, WAIT_S))


os.register_at_fork(after_in_child=hashing.cache_clear)  # its children are its parent's


class BoundedArgon2Hasher(Argon2PasswordHasher):
    """Every hash that this product makes or checks.

    With the second of OWASP's equivalent parameters for Argon2id (46 MiB, one pass, one thread; Password Storage Cheat
    Sheet, cheatsheetseries.owasp.org). Django's take eight threads, whose turns on a processor others wait for. Those
    of an older hash are kept in it: it is checked with them, and made anew when its owner signs in.
    """

    memory_cost = 47_104
    time_cost = 1
    parallelism = 1

    def encode(self, password: str, salt: str) -> str:
        """Raises HashesBusyError and HashNotMadeError."""
        params = self.params()
        cost = {name: getattr(params, name) for name in ("time_cost", "memory_cost", "parallelism", "hash_len")}
        request = {"make": password.encode().hex(), "salt": salt.encode().hex(), "cost": cost}
        return f"{self.algorithm}{_done(hashing().ask(request))['hash']}"

    def verify(self, password: str, encoded: str) -> bool:
        """Raises HashesBusyError and HashNotMadeError."""
        _, _, against = encoded.partition("$")
        answer = hashing().ask({"check": password.encode().hex(), "against": f"${against}"})
        return bool(_done(answer)["right"])


def _done(answer: dict[str, Any]) -> dict[str, Any]:
    if "problem" in answer:
        raise ValueError(f"A password hash could not be made or checked: {answer['problem']}")
    return answer
