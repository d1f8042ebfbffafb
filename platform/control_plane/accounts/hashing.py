"""Password hashing, with a bound on how many run at once.

One takes 100 MiB and all that a core can do, which is its purpose. So that strangers who try to sign in cannot take the
machine's memory, each process makes `LORIKEET_PASSWORD_HASHES` at a time; a few more wait for a moment, and who comes
beyond these is told to come again. They give way to whatever else the process does: their threads, of which Argon2
makes eight for each hash, run at nice 10.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import ParamSpec, TypeVar

from django.contrib.auth.hashers import Argon2PasswordHasher

from control_plane.config import current
from control_plane.errors import LorikeetError
from control_plane.processor import wait_for_others

P = ParamSpec("P")
R = TypeVar("R")
NICE = 10
WAIT_S = 5.0
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


class Places:
    """Room for `at_once` that run and `waiting` that wait for at most `wait_s`."""

    def __init__(self, at_once: int, waiting: int, wait_s: float) -> None:
        self._wait_s = wait_s
        self._present = threading.BoundedSemaphore(at_once + waiting)
        self._running = threading.BoundedSemaphore(at_once)
        self._threads = ThreadPoolExecutor(at_once, "lorikeet-hash", initializer=_give_way)

    def run(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """On a thread that gives way. Raises HashesBusyError."""
        with self.one():
            return self._threads.submit(fn, *args, **kwargs).result()

    @contextmanager
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


def _give_way() -> None:
    """This thread, and those that it starts."""
    wait_for_others()
    if sys.platform == "linux":  # elsewhere it would be the whole process
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, max(NICE, os.getpriority(os.PRIO_PROCESS, thread)))


@lru_cache(maxsize=1)
def places() -> Places:
    """Of this process."""
    return Places(current().password_hashes, WAITING, WAIT_S)


class BoundedArgon2Hasher(Argon2PasswordHasher):
    """Every hash that this product makes or checks."""

    def encode(self, password: str, salt: str) -> str:
        """Raises HashesBusyError."""
        return places().run(super().encode, password, salt)

    def verify(self, password: str, encoded: str) -> bool:
        """Raises HashesBusyError."""
        return places().run(super().verify, password, encoded)
