"""Detection of peers that do not read their answers."""

from __future__ import annotations

import asyncio

# Seconds in which a client may read a full buffer, and bytes of it for each further second.
WRITE_GRACE_S, WRITE_BYTES_PER_S = 60.0, 500


class WriteWatch:
    """A watch on a connection's send buffer, which must shrink while it is full or the connection is closing."""

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
