"""Generations that outlive their socket for a while, so that a client whose connection broke can continue them.

A session holds the generations that began on one socket. It stays in the process where it began, whose name is a part
of its name. Its frames go to its holder: that socket, a later one, or a relay to another process (``resume_relay.py``).
"""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol
from uuid import UUID

from control_plane.gateway.dispatch.errors import ApiError, invalid
from control_plane.gateway.dispatch.json_encoding import encode
from control_plane.gateway.websocket.generation import Send, SocketGeneration

# Seconds for which a generation without a socket, or one that ended, can be resumed.
RESUME_S = 30.0
# Ids that one `resume` may name.
MAX_RESUMED = 256
# Maximum number of characters of an id, and of a session's name.
LONGEST_ID = LONGEST_SESSION = 64
# Maximum number of a session's generations that ended and can still be resumed, and maximum bytes of their frames.
MAX_ENDED, MAX_ENDED_BYTES = 64, 8 << 20
# The caller (a key or a user) and its tenant. Only the same caller may resume a session.
Owner = tuple[str, UUID]


class Holder(Protocol):
    """The receiver of a session's frames."""

    async def send_frame(self, text: str) -> None:
        """Send a frame. Raises OSError if the receiver is gone."""

    def lose(self, session: Session) -> None:
        """End this connection's part in the session, after its client resumed the session on another connection."""


class Session:
    """Generations by the client's ids: those that run, and resumable ones that ended within ``RESUME_S``."""

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
        """Abort a generation and forget it."""
        self.generations.pop(name).end()

    def end(self) -> None:
        """Abort all generations: the client will not return."""
        if self._timer is not None:
            self._timer.cancel()
        for name in [*self.generations]:
            self.drop(name)
        self._forget(self.name)

    def release(self) -> None:
        """Detach the holder: resumable generations continue, and are aborted if no holder takes them within
        ``RESUME_S``.
        """
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
        """Attach a holder in place of any other: a client may reconnect before its old socket is known to be broken."""
        if self._timer is not None:
            self._timer.cancel()
        if self.holder is not None and self.holder is not holder:
            self.holder.lose(self)
        self.holder = holder
        self.at_end = lambda: None

    def _over(self, name: str, generation: SocketGeneration) -> None:
        if generation.resumable:
            # Its frames are kept for as long as a client may resume it.
            asyncio.get_running_loop().call_later(RESUME_S, self._expire, name, generation)
            self._drop_oldest()
        else:
            self._expire(name, generation)
        self.at_end()

    def _drop_oldest(self) -> None:
        """Forget the oldest ended generations when they are too many or too large."""
        ended = [(name, generation) for name, generation in self.generations.items() if generation.over]
        kept = sum(generation.kept_bytes for _, generation in ended)
        for place, (name, generation) in enumerate(ended):
            if len(ended) - place <= MAX_ENDED and kept <= MAX_ENDED_BYTES:
                return
            del self.generations[name]
            kept -= generation.kept_bytes

    def _expire(self, name: str, generation: SocketGeneration) -> None:
        if self.generations.get(name) is generation:
            del self.generations[name]


class Sessions:
    """The sessions that began in this process, on one event loop."""

    def __init__(self) -> None:
        self.process = secrets.token_hex(6)
        self._known: dict[str, Session] = {}

    def open(self, owner: Owner, holder: Holder) -> Session:
        """Open a session for a new socket."""
        session = Session(f"{self.process}.{uuid.uuid4().hex}", owner, holder, lambda name: self._known.pop(name, None))
        self._known[session.name] = session
        return session

    def take(self, name: str, owner: Owner, holder: Holder) -> Session | None:
        """Give a session to a holder; None if it has ended, is in another process, or has another owner."""
        session = self._known.get(name)
        if session is None or session.owner != owner:
            return None
        session.take(holder)
        return session

    def close(self) -> None:
        for session in [*self._known.values()]:
            session.end()


def process_of(session: str) -> str:
    """Return the process in which the named session began."""
    return session.partition(".")[0]


async def hand_over(session: Session | None, name: str, after: Mapping[str, int], send: Send) -> None:
    """Report which ids in ``after`` are lost; for the others, send the frames after that number, then new ones."""
    generations = session.generations if session is not None else {}
    kept = {id for id, seq in after.items() if (generation := generations.get(id)) and generation.has_after(seq)}
    for unwanted in [*generations.keys() - kept]:
        generations.pop(unwanted).end()
    await send(resumed_frame(name, kept, after.keys() - kept, resume_lost()))
    for message_id in after.keys() & kept:
        generation = generations.get(message_id)
        if generation is not None and not await generation.attach(send, after[message_id]):
            generations.pop(message_id).end()
            await send(error_frame(resume_lost(), message_id))


def resumed_frame(session: str, ids: Iterable[str], lost: Collection[str], error: ApiError) -> str:
    """Return one frame that answers a whole `resume`. ``error`` is the reason for the lost ids."""
    frame = {"type": "resumed", "session": session, "ids": sorted(ids), "lost": sorted(lost)}
    return encode({**frame, "error": error_body(error)} if lost else frame)


def read_resume(message: Mapping[str, object]) -> tuple[str, dict[str, int]]:
    """Return the session, and the last number for each id, of a client's message. Raises ``ApiError``."""
    session, after = message.get("session"), message.get("after")
    if not isinstance(session, str) or len(session) > LONGEST_SESSION or not isinstance(after, dict):
        raise invalid("resume needs session and after.", "Send the last seq of each id.", code="malformed_message")
    if len(after) > MAX_RESUMED:
        raise invalid(
            f"The message names {len(after)} ids; the limit is {MAX_RESUMED}.",
            "Name only generations that had not ended.",
            "after",
            "too_many_ids",
        )
    if not all(len(name) <= LONGEST_ID and isinstance(seq, int) for name, seq in after.items()):
        raise invalid("after must map ids to numbers.", "Send the last seq of each id.", "after", "malformed_message")
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
        "The frames of this generation after that number are no longer kept.",
        f"Send the request again. Frames are kept for {RESUME_S:.0f} s, while the server where they began runs.",
    )


def resume_unavailable() -> ApiError:
    return ApiError(
        503,
        "resume_unavailable",
        "The generation runs on another server, which cannot be reached at the moment.",
        f"Connect and resume again within {RESUME_S:.0f} s of the disconnect; otherwise send the request again.",
        retry_after_s=1.0,
    )
