"""``/ws/inference``: many generations on one socket.

Client frames: ``auth`` (unless the key came as a header), ``generate``, ``cancel``, ``resume``, ``ping``. Server
frames: ``hello``, then for each generation ``accepted``, ``delta`` ... and one ``done`` or ``error``, numbered from 1
within the generation. Tokens go from the engine's session to the socket directly. A reader that stalls holds back only
its own socket.

A generation that was started with ``"resume": true`` outlives its socket by ``RESUME_S``: the client connects again,
sends ``resume`` with the session of the broken socket and the last numbers it saw, and gets what it missed.
"""

from __future__ import annotations

import uuid
from typing import Any, ClassVar

from control_plane import config, drain
from control_plane.errors import LorikeetError
from control_plane.gateway import errors
from control_plane.gateway.errors import ApiError, invalid
from control_plane.gateway.parameters import read_json
from control_plane.gateway.responses import encode
from control_plane.gateway.runtime import runtime
from control_plane.gateway.socket_generation import SocketGeneration, note_refusal
from control_plane.gateway.socket_sessions import RESUME_S, Owner, forget_later
from control_plane.live.callers import KeyCaller
from control_plane.live.held import CLOSE_UNAUTHENTICATED, HeldSocket
from control_plane.live.sockets import header
from control_plane.tenants.roles import Capability

LONGEST_ID = 64
# Frames about no generation in particular.
NO_ID = None


class InferenceConsumer(HeldSocket):
    """One socket. Every generation is a task that ends by itself, by ``cancel``, or with the socket."""

    actions: ClassVar = {
        "auth": None,
        "ping": None,
        "generate": Capability.INFER,
        "cancel": Capability.INFER,
        "resume": Capability.INFER,
    }
    needs: ClassVar = Capability.INFER

    async def connect(self) -> None:
        self._session = uuid.uuid4().hex
        self._generations: dict[str, SocketGeneration] = {}
        # Over, but the client may not have all of it.
        self._ended: dict[str, SocketGeneration] = {}
        await super().connect()
        scheme, _, key = header(self.scope, "authorization").partition(" ")
        if scheme.lower() == "bearer":
            await self._authenticate(key.strip())

    async def disconnect(self, code: int) -> None:
        """Ending a generation's task aborts it on the engine."""
        if self.principal is not None:
            self._keep_resumable()
        self._end_all()
        await super().disconnect(code)

    async def cut(self, error: LorikeetError) -> None:
        self._end_all()
        await super().cut(error)

    async def tell_error(self, error: LorikeetError) -> None:
        await self._error(NO_ID, errors.from_platform(error))

    def _end_all(self) -> None:
        for generation in [*self._generations.values()]:
            generation.end()

    def _keep_resumable(self) -> None:
        kept = {**self._ended, **{name: one for name, one in self._generations.items() if one.resumable}}
        for name, generation in kept.items():
            self._generations.pop(name, None)
            generation.detach()
        runtime().sessions.keep(self._session, self._owner, kept)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        message_id: str | None = NO_ID
        try:
            message = self._read(text_data)
            offered = message.get("id")
            message_id = offered if isinstance(offered, str) and len(offered) <= LONGEST_ID else NO_ID
            await self._handle(message)
        except ApiError as error:
            await self._error(message_id, error)
        except LorikeetError as error:
            await self._error(message_id, errors.from_platform(error))

    # -- messages --------------------------------------------------------------

    @staticmethod
    def _read(text: str | None) -> dict[str, Any]:
        limit = config.current().socket_max_message_bytes
        if text is None:
            raise invalid("Binary frames are not understood.", "Send JSON as text frames.", code="malformed_message")
        if len(text) > limit:
            raise ApiError(413, "message_too_large", f"The message is longer than {limit} bytes.", "Send less at once.")
        return read_json(text.encode())

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
            self._cancel(message)
        elif kind == "resume":
            await self._resume(message)
        else:
            raise invalid(
                f"There is no message of type {str(kind)[:40]!r} in this form.",
                "Send auth with key once, generate (id, request), cancel (id), resume (session, after), or ping.",
                "type",
                "malformed_message",
            )

    async def _authenticate(self, key: str) -> None:
        try:
            found = (await runtime().grants.caller(key)).api_key
        except (LorikeetError, ApiError) as error:
            await self._error(NO_ID, error if isinstance(error, ApiError) else errors.from_platform(error))
            await self.close(CLOSE_UNAUTHENTICATED)
            return
        assert found is not None
        if await self.hold(KeyCaller.of(found, key)):
            await self._greet()

    async def _greet(self) -> None:
        await self._send({"type": "hello", "session": self._session, "resume_s": RESUME_S})

    def _cancel(self, message: dict[str, Any]) -> None:
        """Its ``done`` tells the client. A generation that is over or unknown needs no answer."""
        generation = self._generations.get(str(message.get("id")))
        if generation is not None:
            generation.cancel()

    def _generate(self, message: dict[str, Any]) -> None:
        assert self.principal is not None  # else the message was refused
        try:
            message_id, body = self._asked(message)
        except ApiError as error:
            note_refusal(self.principal, message.get("request"), error)
            raise
        self._ended.pop(message_id, None)
        resumable = message.get("resume") is True
        generation = SocketGeneration(message_id, body, self.principal, self.send_frame, resumable=resumable)
        self._generations[message_id] = generation
        generation.at_end = lambda: self._over(message_id)
        generation.start()

    def _asked(self, message: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Id and body of a generation that may begin. Raises ``ApiError``."""
        message_id, body = message.get("id"), message.get("request")
        if not isinstance(message_id, str) or not 0 < len(message_id) <= LONGEST_ID:
            raise invalid(
                f"A generation needs an id of 1 to {LONGEST_ID} characters.", "Choose one per generation.", "id"
            )
        if not isinstance(body, dict):
            raise invalid("A generation needs a request object.", "Put the request's body there.", "request")
        if message_id in self._generations:
            raise invalid(f'A generation "{message_id}" is running.', "Use a new id for each.", "id", "duplicate_id")
        if drain.is_draining():
            raise ApiError(503, "server_draining", "This server is about to stop.", "Connect again.", retry_after_s=1.0)
        most = config.current().socket_max_generations
        if len(self._generations) >= most:
            raise ApiError(
                429,
                "too_many_generations",
                f"This socket runs {most} generations already.",
                "Wait for one to end, or open another socket.",
                retry_after_s=1.0,
            )
        return message_id, body

    def _over(self, name: str) -> None:
        generation = self._generations.pop(name, None)
        if generation is not None and generation.resumable:
            self._ended[name] = generation
            forget_later(lambda: self._ended.pop(name, None) if self._ended.get(name) is generation else None)

    async def _resume(self, message: dict[str, Any]) -> None:
        """Take the generations of a broken socket over, each from the frame that the client has."""
        session, after = message.get("session"), message.get("after")
        if not isinstance(session, str) or not isinstance(after, dict):
            raise invalid("resume needs session and after.", "Send the last seq of each id.", code="malformed_message")
        kept = runtime().sessions.take(session, self._owner)
        for name in kept.keys() - after.keys():
            kept.pop(name).end()  # the client does not want it any more
        await self._send({"type": "resumed", "session": session, "ids": sorted(kept)})
        for name, seq in after.items():
            generation = kept.get(name)
            if generation is None or not isinstance(seq, int) or not await self._adopt(name, generation, seq):
                await self._error(name, _not_resumed(name))

    async def _adopt(self, name: str, generation: SocketGeneration, seq: int) -> bool:
        if name in self._generations:
            generation.end()
            return False
        (self._ended if generation.over else self._generations)[name] = generation
        generation.at_end = lambda: self._over(name)
        if await generation.attach(self.send_frame, seq):
            return True
        generation.end()
        return False

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
        frame: dict[str, Any] = {"type": "error", "error": error.frame_body()}
        if message_id is not None:
            frame |= {"id": message_id, "seq": 0}
        await self._send(frame)


def _not_resumed(name: str) -> ApiError:
    return ApiError(
        404,
        "resume_lost",
        f'Nothing is left of the generation "{name[:LONGEST_ID]}" after that frame.',
        f"Send the request again. Generations are kept for {RESUME_S:.0f} s, on the server where they began.",
    )
