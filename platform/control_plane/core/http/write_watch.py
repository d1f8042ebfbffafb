"""Whether a peer reads what it is sent."""

from __future__ import annotations

import asyncio

WRITE_GRACE_S, WRITE_BYTES_PER_S = 60.0, 500
"""A full buffer may take so long to be read by the client, and a second more for every so many bytes of it."""


class WriteWatch:
    """Only a buffer that takes no more, or a closing one, must shrink."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._since: tuple[float, int] | None = None

    def progressed(self) -> None:
        self._since = None

    def stalls(self, now: float, *, waiting: bool) -> bool:
        size = self._transport.get_write_buffer_size()
        if not size or not waiting:
            self._since = None
        elif self._since is None:
            self._since = (now, size)
        else:
            began, then = self._since
            return now - began > WRITE_GRACE_S + max(then - size, 0) / WRITE_BYTES_PER_S
        return False
