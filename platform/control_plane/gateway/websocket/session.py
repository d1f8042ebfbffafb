"""Generations that outlive their socket for a while, so that a client whose connection broke can go on where it was.

A session is what began on one socket. It stays in the process where it began, whose name is part of its own; its frames
go to whoever holds it: that socket, a later one, or a relay to another process (``resume_relay.py``).
"""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from control_plane.gateway.dispatch.errors import ApiError, invalid
from control_plane.gateway.dispatch.json_encoding import encode

if TYPE_CHECKING:
    from control_plane.gateway.websocket.generation import SocketGeneration

RESUME_S = 30.0
MOST_RESUMED = 256
"""Ids that one `resume` may name."""
LONGEST_ID = LONGEST_SESSION = 64
MOST_ENDED, MOST_ENDED_BYTES = 64, 8 << 20
"""Of a session: generations that ended and can still be resumed, and their frames."""
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
            self._drop_oldest()
        else:
            self._expire(name, generation)
        self.at_end()

    def _drop_oldest(self) -> None:
        """Of those that ended, when they are too many."""
        ended = [(name, generation) for name, generation in self.generations.items() if generation.over]
        kept = sum(generation.kept_bytes for _, generation in ended)
        for place, (name, generation) in enumerate(ended):
            if len(ended) - place <= MOST_ENDED and kept <= MOST_ENDED_BYTES:
                return
            del self.generations[name]
            kept -= generation.kept_bytes

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


async def hand_over(session: Session | None, name: str, after: Mapping[str, int], send: Send) -> None:
    """Say which of the ids in ``after`` are lost, then send what the client missed of the others, from the frame that
    it names; then frames go on from there."""
    generations = session.generations if session is not None else {}
    held = {id for id, seq in after.items() if (generation := generations.get(id)) and generation.has_after(seq)}
    for unwanted in [*generations.keys() - held]:
        generations.pop(unwanted).end()
    await send(resumed_frame(name, held, after.keys() - held, resume_lost()))
    for message_id in after.keys() & held:
        generation = generations.get(message_id)
        if generation is not None and not await generation.attach(send, after[message_id]):
            generations.pop(message_id).end()
            await send(error_frame(resume_lost(), message_id))


def resumed_frame(session: str, ids: Iterable[str], lost: Collection[str], error: ApiError) -> str:
    """One frame for all that was asked for. ``error`` says why there is nothing of those that are lost."""
    frame = {"type": "resumed", "session": session, "ids": sorted(ids), "lost": sorted(lost)}
    return encode({**frame, "error": error_body(error)} if lost else frame)


def read_resume(message: Mapping[str, object]) -> tuple[str, dict[str, int]]:
    """Session, and the last number of each id, of a client's message. Raises ``ApiError``."""
    session, after = message.get("session"), message.get("after")
    if not isinstance(session, str) or len(session) > LONGEST_SESSION or not isinstance(after, dict):
        raise invalid("resume needs session and after.", "Send the last seq of each id.", code="malformed_message")
    if len(after) > MOST_RESUMED:
        raise invalid(
            f"The message names {len(after)} ids; {MOST_RESUMED} is the most.",
            "Name those alone that had not ended.",
            "after",
            "too_many_ids",
        )
    if not all(len(name) <= LONGEST_ID and isinstance(seq, int) for name, seq in after.items()):
        raise invalid("after holds numbers by id.", "Send the last seq of each id.", "after", "malformed_message")
    return session, after


def error_frame(error: ApiError, message_id: str | None = None) -> str:
    frame = {"type": "error", "error": error_body(error)}
    return encode(frame if message_id is None else {**frame, "id": message_id, "seq": 0})


def error_body(error: ApiError) -> dict[str, object]:
    return {**error.frame_body(), "retry_after_s": error.retry_after_s}


def resume_lost() -> ApiError:
    return ApiError(
        404,
        "resume_lost",
        "Nothing is left of the generation after that frame.",
        f"Send the request again. Generations are kept for {RESUME_S:.0f} s, while the server where they began runs.",
    )


def resume_unavailable() -> ApiError:
    return ApiError(
        503,
        "resume_unavailable",
        "The generation runs on another server, which cannot be reached at the moment.",
        f"Connect and resume again within {RESUME_S:.0f} s of the break; else send the request again.",
        retry_after_s=1.0,
    )
