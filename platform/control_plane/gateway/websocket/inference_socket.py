"""``/ws/inference``: many generations on one socket.

Client frames: ``auth`` (unless the key came as a header), ``generate``, ``cancel``, ``resume``, ``ping``. Server
frames: ``hello``, then for each generation ``accepted``, ``delta`` ... and one ``done`` or ``error``, numbered from 1
within the generation. Tokens go from the engine's session to the socket directly. A reader that stalls delays only its
own socket.

A generation that was started with ``"resume": true`` outlives its socket by ``RESUME_S``: the client connects again,
sends ``resume`` with the session in which it began and the last numbers it received, and receives the frames that it
missed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from control_plane.core import config, drain
from control_plane.core.errors import LorikeetError
from control_plane.core.http.metrics import SOCKET_ERRORS
from control_plane.core.unavailable import UnavailableError
from control_plane.gateway.dispatch import errors
from control_plane.gateway.dispatch.errors import ApiError, invalid
from control_plane.gateway.dispatch.json_encoding import encode
from control_plane.gateway.dispatch.runtime import runtime
from control_plane.gateway.websocket.generation import SocketGeneration, undispatched
from control_plane.gateway.websocket.resume_relay import Remote, resume_relay
from control_plane.gateway.websocket.session import (
    LONGEST_ID,
    RESUME_S,
    Owner,
    Session,
    error_frame,
    hand_over,
    process_of,
    read_resume,
    resume_lost,
)
from control_plane.identity.sockets.authenticated_socket import AuthenticatedSocket, SocketFailedError, close_code
from control_plane.identity.sockets.handshake import header
from control_plane.identity.sockets.identity import KeyCaller
from control_plane.identity.tenants.roles import Capability

# Sessions of broken sockets that one socket may resume.
MAX_SESSIONS = 16
# WebSocket close code: the session was resumed on another socket.
CLOSE_TAKEN = 4409
# The id of frames that belong to no generation.
NO_ID = None


class InferenceConsumer(AuthenticatedSocket):
    """A client's socket. Every generation is a task that ends by itself, by ``cancel``, or with the socket."""

    actions: ClassVar = {
        "auth": None,
        "ping": None,
        "generate": Capability.INFER,
        "cancel": Capability.INFER,
        "resume": Capability.INFER,
    }
    needs: ClassVar = Capability.INFER

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Sessions: begun on this socket, resumed from this process, and resumed from other processes.
        self._session: Session | None = None
        self._resumed: list[Session] = []
        self._remotes: list[Remote] = []

    async def connect(self) -> None:
        await super().connect()
        scheme, _, key = header(self.scope, "authorization").partition(" ")
        if scheme.lower() == "bearer":
            await self._authenticate(key.strip())

    async def disconnect(self, code: int) -> None:
        """Release the generations: resumable ones continue for a while, the others are aborted."""
        for session in self._sessions():
            session.release()
        await self._leave_remotes(end=False)
        await super().disconnect(code)

    async def cut(self, error: LorikeetError) -> None:
        """Close the socket with an error. Its generations end, unless the error is a failing service: then they can be
        resumed.
        """
        for_good = not isinstance(error, UnavailableError | SocketFailedError)
        if for_good:
            self._end_all()
        await super().cut(error)
        await self._leave_remotes(end=for_good)

    async def tell_error(self, error: LorikeetError) -> None:
        await self._error(NO_ID, errors.from_platform(error))

    def lose(self, session: Session) -> None:
        """Take the loss of a session that its client resumed on another socket; this socket is probably dead."""
        if session is self._session:
            self._session = None
            self._closing = asyncio.ensure_future(self.close(CLOSE_TAKEN))
        else:
            self._resumed.remove(session)

    def _sessions(self) -> list[Session]:
        return [*([self._session] if self._session is not None else []), *self._resumed]

    async def end_generations(self) -> None:
        """End all generations, since the caller may no longer infer."""
        for session in self._sessions():
            for name in [*session.generations]:
                session.drop(name)
        await self._leave_remotes(end=True)

    def _end_all(self) -> None:
        for session in self._sessions():
            session.end()
        self._session = None
        self._resumed.clear()

    async def _leave_remotes(self, *, end: bool) -> None:
        remotes, self._remotes = self._remotes, []
        await asyncio.gather(*(remote.close(end=end) for remote in remotes))

    def _running(self) -> Iterator[str]:
        """Yield the ids of generations that run, in this process or in others."""
        for session in self._sessions():
            yield from (name for name, generation in session.generations.items() if not generation.over)
        for remote in self._remotes:
            yield from remote.ids

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        message_id: str | None = NO_ID
        try:
            message = await self._read(text_data)
            raw_id = message.get("id")
            message_id = raw_id if isinstance(raw_id, str) and len(raw_id) <= LONGEST_ID else NO_ID
            await self._handle(message)
        except ApiError as error:
            await self._error(message_id, error)
        except LorikeetError as error:
            await self._error(message_id, errors.from_platform(error))

    # -- messages --------------------------------------------------------------

    async def _read(self, text: str | None) -> dict[str, Any]:
        if text is None:
            raise invalid("Binary frames are not supported.", "Send JSON as text frames.", code="malformed_message")
        return await self.parse(text, nul=True)  # prompts are not stored unchanged

    async def _handle(self, message: dict[str, Any]) -> None:
        kind = message.get("type")
        if not await self.admits(kind):
            return
        if kind == "ping":
            await self._send({"type": "pong"})
        elif kind == "auth" and self.caller is None and isinstance(message.get("key"), str):
            await self._authenticate(message["key"])
        elif kind == "auth" and self.caller is None and isinstance(message.get("ticket"), str):
            if await self.hold_by_ticket(message["ticket"]):
                await self._greet()
        elif kind == "generate":
            self._generate(message)
        elif kind == "cancel":
            await self._cancel(message)
        elif kind == "resume":
            await self._resume(message)
        else:
            named = f'There is no message of type "{kind[:40]}" with these fields.' if isinstance(kind, str) else ""
            raise invalid(
                named or "The message has no type.",
                "Send auth with key once, generate (id, request), cancel (id), resume (session, after), or ping.",
                "type",
                "malformed_message",
            )

    async def _authenticate(self, key: str) -> None:
        try:
            api_key = (await runtime().admission_cache.caller(key)).api_key
        except (LorikeetError, ApiError) as error:
            await self._error(NO_ID, error if isinstance(error, ApiError) else errors.from_platform(error))
            await self.close(close_code(error.status))
            return
        assert api_key is not None
        if await self.hold(KeyCaller.of(api_key, key)):
            await self._greet()

    async def _greet(self) -> None:
        self._session = resume_relay().sessions.open(self._owner, self)
        await self._send({"type": "hello", "session": self._session.name, "resume_s": RESUME_S})

    async def _cancel(self, message: dict[str, Any]) -> None:
        """Abort a generation; its ``done`` frame follows. Raises ``ApiError`` (404) if the id is unknown."""
        name = message.get("id")
        if not isinstance(name, str):
            raise invalid("cancel needs an id.", "Send the generation's id.", "id", "malformed_message")
        generations = [match for session in self._sessions() if (match := session.generations.get(name)) is not None]
        remotes = [remote for remote in self._remotes if name in remote.ids]
        if not generations and not remotes:
            raise ApiError(
                404,
                "unknown_generation",
                "No generation of this id runs on this socket.",
                "It has ended or never began: expect no more frames of it.",
                "id",
            )
        for generation in generations:
            generation.cancel()
        for remote in remotes:
            await remote.cancel(name)

    def _generate(self, message: dict[str, Any]) -> None:
        assert self.principal is not None  # else the message was refused before
        with undispatched(self.principal, message.get("request")):
            message_id, body = self._validated(message)
        assert self._session is not None  # opened by the greeting
        resumable = message.get("resume") is True
        generation = SocketGeneration(message_id, body, self.principal, self.send_frame, resumable=resumable)
        self._session.start(message_id, generation)

    def _validated(self, message: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the id and the request body of a message, if its generation may begin. Raises ``ApiError``."""
        message_id, body = message.get("id"), message.get("request")
        if not isinstance(message_id, str) or not 0 < len(message_id) <= LONGEST_ID:
            raise invalid(
                f"A generation needs an id of 1 to {LONGEST_ID} characters.", "Choose one per generation.", "id"
            )
        if not isinstance(body, dict):
            raise invalid("A generation needs a request object.", "Put the request's body in request.", "request")
        running = set(self._running())
        if message_id in running:
            raise invalid(f'A generation "{message_id}" is running.', "Use a new id for each.", "id", "duplicate_id")
        if drain.is_draining():
            raise ApiError(503, "server_draining", "This server is about to stop.", "Connect again.", retry_after_s=1.0)
        most = config.current().socket_max_generations
        if len(running) >= most:
            raise ApiError(
                429,
                "too_many_generations",
                f"This socket runs {most} generations already.",
                "Wait for one to end, or open another socket.",
                retry_after_s=1.0,
            )
        return message_id, body

    async def _resume(self, message: dict[str, Any]) -> None:
        """Continue the generations of a broken socket, each after the last frame that the client received."""
        session, after = read_resume(message)
        if len(self._resumed) + len(self._remotes) >= MAX_SESSIONS:
            raise ApiError(
                429,
                "too_many_sessions",
                f"This socket has resumed {MAX_SESSIONS} sessions already.",
                "Resume further ones on another socket.",
            )
        clashing = after.keys() & set(self._running())
        for name in clashing:
            await self._error(name, resume_lost())
        wanted = {name: seq for name, seq in after.items() if name not in clashing}
        if process_of(session) == resume_relay().sessions.process:
            await self._resume_here(session, wanted)
        else:
            await self._resume_from_other_process(session, wanted)

    async def _resume_here(self, name: str, after: Mapping[str, int]) -> None:
        session = resume_relay().sessions.take(name, self._owner, self)
        if session is not None and session not in self._sessions():
            self._resumed.append(session)
        with contextlib.suppress(OSError):  # this socket broke too: its disconnect follows
            await hand_over(session, name, after, self.send_frame)

    async def _resume_from_other_process(self, name: str, after: Mapping[str, int]) -> None:
        remote = resume_relay().remote(name, after, self.send_frame)
        if remote is None:
            await hand_over(None, name, after, self.send_frame)
            return
        self._remotes.append(remote)
        remote.start(self._owner).add_done_callback(lambda _task: self._forget(remote))

    def _forget(self, remote: Remote) -> None:
        if remote in self._remotes:
            self._remotes.remove(remote)

    @property
    def _owner(self) -> Owner:
        assert self.caller is not None and self.principal is not None
        return (self.caller.group, self.principal.tenant.pk)

    # -- for generations -------------------------------------------------------

    async def send_frame(self, text: str) -> None:
        await self.base_send({"type": "websocket.send", "text": text})

    async def _send(self, message: dict[str, Any]) -> None:
        await self.send_frame(encode(message))

    async def _error(self, message_id: str | None, error: ApiError) -> None:
        SOCKET_ERRORS.labels(self.scope["path"], error.code).inc()
        await self.send_frame(error_frame(error, message_id))
