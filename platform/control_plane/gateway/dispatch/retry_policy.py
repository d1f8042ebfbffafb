"""Decides whether a request whose host failed is sent to another one, and how long it waits for a host."""

from __future__ import annotations

import time
from dataclasses import dataclass

from control_plane.core import config
from control_plane.fleet.transport.errors import BROKEN, ELSEWHERE, LOST, NOT_BACK, STANDS_STILL, HostError

# Attempts in a row that delivered no token before the request fails.
MAX_ATTEMPTS = 3
# Hosts that broke in a row while they ran a request, without a further token, before it fails: the request itself may
# be the cause, and break every host that gets it.
MAX_BROKEN_IN_A_ROW = 2
# Hosts that broke while they ran a request before it fails, whatever it delivered: it may break each a little later.
MAX_BROKEN_HOSTS = 4


@dataclass(frozen=True)
class Retry:
    """A permitted retry. Its three counts are the request's once another host has accepted it."""

    broken: int
    broken_in_a_row: int
    fruitless: int
    # Whether to wait for a restarted or a new host if no other host accepts the request.
    waits: bool
    # Whether hosts are skipped that accept no request now.
    must_accept: bool
    # Whether hosts are tried a second time if there is no untried one.
    repeats: bool


class RetryPolicy:
    """The failed attempts of one request."""

    def __init__(self, *, may_sleep: bool) -> None:
        """``may_sleep``: whether hosts of the base model may be stopped while it is idle, and start on demand."""
        self._may_sleep = may_sleep
        self._fruitless = 0  # attempts since the last output
        self._broken = 0
        self._broken_in_a_row = 0  # since the answer last became longer
        self._longest = 0  # tokens of the answer, on whichever host
        self._returns_until = 0.0  # monotonic time until which a host is waited for

    def on_output(self, tokens: int) -> None:
        """Note output of a host. ``tokens`` counts the answer so far; a host that began it anew repeats it."""
        self._fruitless, self._returns_until = 0, 0.0
        if tokens > self._longest:
            self._longest, self._broken_in_a_row = tokens, 0

    def on_accepted(self, retry: Retry) -> None:
        self._broken, self._broken_in_a_row, self._fruitless = retry.broken, retry.broken_in_a_row, retry.fruitless

    def retry(self, failure: HostError, tokens: int) -> Retry | None:
        """Return how to go on after a failure; None if the request fails. ``tokens`` counts its output so far."""
        if failure.code not in ELSEWHERE:
            return None
        waits = self._may_return(failure, tokens)
        # While a lost host may return, others that drain do not count as failed attempts of the request.
        uncounted = waits and failure.code in NOT_BACK
        is_broken, fruitless = failure.code in BROKEN, self._fruitless + (not uncounted)
        broken, in_a_row = self._broken + is_broken, self._broken_in_a_row + is_broken
        if fruitless == MAX_ATTEMPTS or in_a_row == MAX_BROKEN_IN_A_ROW or broken == MAX_BROKEN_HOSTS:
            return None
        return Retry(broken, in_a_row, fruitless, waits, waits or failure.code in STANDS_STILL, not uncounted)

    def may_wait(self) -> bool:
        """Return whether a host may still return or wake."""
        return time.monotonic() < self._returns_until

    def _may_return(self, failure: HostError, tokens: int) -> bool:
        settings = config.current()
        # A host that is not there stays away if nothing of the request was lost with it, unless it starts on demand.
        returns_s = settings.host_return_s if failure.code in LOST or tokens > 0 else 0.0
        wakes_s = settings.wake_wait_s if self._may_sleep else 0.0
        if failure.code in LOST | NOT_BACK and (wait_s := max(returns_s, wakes_s)):
            self._returns_until = self._returns_until or time.monotonic() + wait_s
        return self.may_wait() and failure.code in LOST | NOT_BACK
