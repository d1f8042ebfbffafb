"""Generations that outlive their socket for a while, so that a client whose connection broke can go on where it was.

A session is what began on one socket. It stays in the process where it began, whose name is part of its own; its frames
go to whoever holds it: that socket, a later one, or a relay to another process (``resume_relay.py``).
"""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from control_plane.gateway.errors import ApiError
from control_plane.gateway.json_encoding import encode

if TYPE_CHECKING:
    from control_plane.gateway.sockets.generation import SocketGeneration

RESUME_S = 30.0
Owner = tuple[str, UUID]
"""Who (a key or a person) in which tenant. Only the same may take a session up again."""
Send = Callable[[str], Awaitable[None]]


class Holder(Protocol):
    """Where a session's frames go."""

    async def send_frame(self, text: str) -> None:
        """Raises OSError if they can go there no more."""

    def lose(self, session: Session) -> None:
        """Its client took the session up elsewhere."""


class Session:
    """Generations by the client's ids: those that run, and those that ended within ``RESUME_S`` and can be resumed."""

    def __init__(self, name: str, owner: Owner, holder: Holder, forget: Callable[[str], object]) -> None:
        self.name, self.owner = name, owner
        self.holder: Holder | None = holder
        self.generations: dict[str, SocketGeneration] = {}
        self.at_end: Callable[[], object] = lambda: None
        self._forget = forget
        self._timer: asyncio.TimerHandle | None = None

    @property
    def running(self) -> Iterator[SocketGeneration]:
        return (generation for generation in self.generations.values() if not generation.over)

    def start(self, name: str, generation: SocketGeneration) -> None:
        self.generations[name] = generation
        generation.at_end = lambda: self._over(name, generation)
        generation.start()

    def drop(self, name: str) -> None:
        """The client wants no more of it."""
        self.generations.pop(name).end()

    def end(self) -> None:
        """Nobody will come back."""
        if self._timer is not None:
            self._timer.cancel()
        for name in [*self.generations]:
            self.drop(name)
        self._forget(self.name)

    def release(self) -> None:
        """Its holder is gone: what can be resumed goes on, and is aborted if nobody comes for it."""
        self.holder = None
        for name, generation in [*self.generations.items()]:
            if generation.resumable:
                generation.detach()
            else:
                self.drop(name)
        if self.generations:
            self._timer = asyncio.get_running_loop().call_later(RESUME_S, self.end)
        else:
            self._forget(self.name)

    def take(self, holder: Holder) -> None:
        """Hold it from now on, whoever did: a client that comes back may be faster than the news that it left."""
        if self._timer is not None:
            self._timer.cancel()
        if self.holder is not None and self.holder is not holder:
            self.holder.lose(self)
        self.holder = holder
        self.at_end = lambda: None

    def _over(self, name: str, generation: SocketGeneration) -> None:
        if generation.resumable:
            # Its frames stay as long as a client may ask for them again.
            asyncio.get_running_loop().call_later(RESUME_S, self._expire, name, generation)
        else:
            self._expire(name, generation)
        self.at_end()

    def _expire(self, name: str, generation: SocketGeneration) -> None:
        if self.generations.get(name) is generation:
            del self.generations[name]


class Sessions:
    """The sessions that began in this process. Of one event loop."""

    def __init__(self) -> None:
        self.process = secrets.token_hex(6)
        self._known: dict[str, Session] = {}

    def open(self, owner: Owner, holder: Holder) -> Session:
        """For a new socket."""
        session = Session(f"{self.process}.{uuid.uuid4().hex}", owner, holder, lambda name: self._known.pop(name, None))
        self._known[session.name] = session
        return session

    def take(self, name: str, owner: Owner, holder: Holder) -> Session | None:
        """None if it is over, elsewhere, or another's."""
        session = self._known.get(name)
        if session is None or session.owner != owner:
            return None
        session.take(holder)
        return session

    def close(self) -> None:
        for session in [*self._known.values()]:
            session.end()


def process_of(session: str) -> str:
    """The process in which a session of that name began."""
    return session.partition(".")[0]


async def hand_over(session: Session | None, name: str, after: Mapping[str, object], send: Send) -> None:
    """Send what the client missed of each id in ``after``, from the frame it names; then frames go on from there."""
    generations = session.generations if session is not None else {}
    for unwanted in [*generations.keys() - after.keys()]:
        generations.pop(unwanted).end()
    await send(resumed_frame(name, generations.keys() & after.keys()))
    for message_id, seq in after.items():
        generation = generations.get(message_id)
        if generation is not None and isinstance(seq, int) and await generation.attach(send, seq):
            continue
        if generation is not None:
            generations.pop(message_id).end()
        await send(error_frame(resume_lost(message_id), message_id))


def resumed_frame(session: str, ids: Iterable[str]) -> str:
    return encode({"type": "resumed", "session": session, "ids": sorted(ids)})


def error_frame(error: ApiError, message_id: str | None = None) -> str:
    frame = {"type": "error", "error": {**error.frame_body(), "retry_after_s": error.retry_after_s}}
    return encode(frame if message_id is None else {**frame, "id": message_id, "seq": 0})


def resume_lost(message_id: str) -> ApiError:
    return ApiError(
        404,
        "resume_lost",
        f'Nothing is left of the generation "{message_id[:64]}" after that frame.',
        f"Send the request again. Generations are kept for {RESUME_S:.0f} s, while the server where they began runs.",
    )


def resume_unavailable(message_id: str) -> ApiError:
    return ApiError(
        503,
        "resume_unavailable",
        f'The generation "{message_id[:64]}" runs on another server, which cannot be reached at the moment.',
        f"Connect and resume again within {RESUME_S:.0f} s of the break; else send the request again.",
        retry_after_s=1.0,
    )
