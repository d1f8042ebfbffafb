"""Waiting for the server with an end: the progress lines, the pauses between polls, and `--timeout`."""

from __future__ import annotations

import time

from lorikeet_cli.errors import TIMED_OUT, CliError
from lorikeet_cli.output import say

# Seconds between two polls of a resource that is waited for.
POLL_S = 0.5


class Wait:
    """A wait that prints each change of its progress and ends with an error after `timeout_s` seconds.

    `fix` names the command that shows the rest later: the server continues with its work.
    """

    def __init__(self, timeout_s: float, fix: str) -> None:
        self._timeout_s, self._fix = timeout_s, fix
        self._end = time.monotonic() + timeout_s
        self._progress = ""

    def pause(self, progress: str) -> None:
        """Sleep until the next poll. Raises CliError if the time is over."""
        if progress and progress != self._progress:
            say(progress)
            self._progress = progress
        left = self._end - time.monotonic()
        if left <= 0:
            message = f"It is not done after {self._timeout_s:g} s{f' ({progress})' if progress else ''}."
            fix = f"The server continues with it. {self._fix}"
            raise CliError(message, fix, code="timed_out", exit_code=TIMED_OUT)
        time.sleep(min(POLL_S, left))
