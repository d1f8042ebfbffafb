"""Generations that outlive their socket for a while, so that a client whose connection broke can go on where it was.

A session belongs to the web process that it began on: a balancer in front of several must send `?session=` to the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from control_plane.gateway.socket_generation import SocketGeneration

RESUME_S = 30.0
Owner = tuple[str, UUID]
"""Who (a key or a person) in which tenant. Only the same may take a session up again."""


class Sessions:
    """Sessions without a socket. Of one event loop."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Owner, dict[str, SocketGeneration], asyncio.TimerHandle]] = {}

    def keep(self, session: str, owner: Owner, generations: dict[str, SocketGeneration]) -> None:
        """Its socket broke: whatever nobody comes back for is aborted."""
        if generations:
            timer = asyncio.get_running_loop().call_later(RESUME_S, self._forget, session)
            self._kept[session] = (owner, generations, timer)

    def take(self, session: str, owner: Owner) -> dict[str, SocketGeneration]:
        """The session's generations by id; nothing if it is over, elsewhere, or another's."""
        kept = self._kept.get(session)
        if kept is None or kept[0] != owner:
            return {}
        del self._kept[session]
        kept[2].cancel()
        return kept[1]

    def close(self) -> None:
        for session in [*self._kept]:
            self._forget(session)

    def _forget(self, session: str) -> None:
        _, generations, timer = self._kept.pop(session)
        timer.cancel()
        for generation in generations.values():
            generation.end()


def forget_later(forget: Callable[[], object]) -> None:
    """Frames of a generation that ended stay as long as a client may ask for them again."""
    asyncio.get_running_loop().call_later(RESUME_S, forget)
