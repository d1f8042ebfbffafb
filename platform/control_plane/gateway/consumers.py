"""``/ws/inference``: many generations on one socket.

Client frames: ``auth`` (unless the key came as a header), ``generate``, ``cancel``, ``ping``. Server frames: ``hello``,
then for each generation ``accepted``, ``delta`` ... and one ``done`` or ``error``, numbered from 1 within the
generation. Tokens go from the engine's session to the socket directly. A reader that stalls holds back only its own
socket.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from control_plane import config, drain
from control_plane.errors import LorikeetError
from control_plane.fleet.coalescing import Chunk
from control_plane.fleet.errors import HostError
from control_plane.gateway import errors
from control_plane.gateway.admission import Admission
from control_plane.gateway.chat import ChatRequest
from control_plane.gateway.completions import CompletionRequest
from control_plane.gateway.errors import ApiError, invalid
from control_plane.gateway.generation import Generation, begin
from control_plane.gateway.parameters import read_json, read_parameters
from control_plane.gateway.responses import encode, usage_json
from control_plane.gateway.runtime import runtime
from control_plane.live.callers import KeyCaller
from control_plane.live.held import CLOSE_UNAUTHENTICATED, HeldSocket
from control_plane.live.sockets import header
from control_plane.tenants.roles import Capability
from lora_engine.wire import engine_pb2 as pb

logger = logging.getLogger(__name__)

LONGEST_ID = 64
# Frames about no generation in particular.
NO_ID = None


class InferenceConsumer(HeldSocket):
    """One socket. Every generation is a task that ends by itself, by ``cancel``, or with the socket."""

    actions: ClassVar = {"auth": None, "ping": None, "generate": Capability.INFER, "cancel": Capability.INFER}
    needs: ClassVar = Capability.INFER

    async def connect(self) -> None:
        self._generations: dict[str, GenerationTask] = {}
        await super().connect()
        scheme, _, key = header(self.scope, "authorization").partition(" ")
        if scheme.lower() == "bearer":
            await self._authenticate(key.strip())

    async def disconnect(self, code: int) -> None:
        """Ending a generation's task aborts it on the engine."""
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
        else:
            raise invalid(
                f"There is no message of type {str(kind)[:40]!r} in this form.",
                "Send auth with key once, generate with id and request, cancel with id, or ping.",
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
        await self._send({"type": "hello", "session": uuid.uuid4().hex})

    def _cancel(self, message: dict[str, Any]) -> None:
        """Its ``done`` tells the client. A generation that is over or unknown needs no answer."""
        generation = self._generations.get(str(message.get("id")))
        if generation is not None:
            generation.cancel()

    def _generate(self, message: dict[str, Any]) -> None:
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
        generation = GenerationTask(self, message_id, body)
        self._generations[message_id] = generation
        generation.start(lambda: self._generations.pop(message_id, None))

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


class GenerationTask:
    """One generation on one socket."""

    def __init__(self, socket: InferenceConsumer, message_id: str, body: dict[str, Any]) -> None:
        self._socket, self._body = socket, body
        self._id = encode(message_id)
        self._seq = 0
        self._name = message_id
        self._reasons: dict[int, str] = {}
        self._generation: Generation | None = None
        self._cancelled = False
        self._task: asyncio.Task[None] | None = None

    def start(self, at_end: Callable[[], object]) -> None:
        self._task = asyncio.create_task(self._run(), name=f"ws-{self._name}")
        self._task.add_done_callback(lambda _task: at_end())

    def cancel(self) -> None:
        """The client wants no more; it still gets what was made and the usage."""
        self._cancelled = True
        if self._generation is not None:
            self._generation.abort()

    def end(self) -> None:
        """The client is gone."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            with drain.working():
                await self._generate()
        except ApiError as error:
            await self._fail(error)
        except HostError as failure:
            await self._fail(errors.from_failure(failure))
        except LorikeetError as error:
            await self._fail(errors.from_platform(error))
        except Exception:
            logger.exception("a generation on a websocket failed")
            await self._fail(errors.internal())

    async def _generate(self) -> None:
        asked = self._read()
        admission = await self._admit(asked.model)
        async with await begin(runtime(), admission, asked, streamed=True) as generation:
            self._generation = generation
            await self._send("accepted", f'"request_id":{encode(generation.request_id)},"model":{encode(asked.model)}')
            if self._cancelled:
                generation.abort()
            async for chunks in generation:
                await self._deltas(chunks)
            await self._done(generation, asked.total_choices)

    def _read(self) -> ChatRequest | CompletionRequest:
        # `stream` belongs to HTTP: everything streams here.
        body = {name: value for name, value in self._body.items() if name not in ("stream", "stream_options")}
        kind: type[ChatRequest | CompletionRequest] = CompletionRequest if "prompt" in body else ChatRequest
        return read_parameters(kind, body)

    async def _admit(self, model: str) -> Admission:
        principal = self._socket.principal
        assert principal is not None  # else the message was refused
        return await runtime().grants.admission(principal, model)

    async def _deltas(self, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            if chunk.finish_reason:
                self._reasons[chunk.choice] = chunk.finish_reason
            logprobs = f',"logprobs":{encode(_logprobs(chunk.logprobs))}' if chunk.logprobs else ""
            await self._send_numbered(
                "delta",
                f'"choice":{chunk.choice},"text":{encode(chunk.text)},"tokens":{chunk.tokens}{logprobs}',
            )

    async def _done(self, generation: Generation, choices: int) -> None:
        reasons = [self._reasons.get(choice, "abort") for choice in range(choices)]
        usage, timings = encode(usage_json(generation.usages)), encode(timings_json(generation.usages))
        await self._send_numbered("done", f'"finish_reason":{encode(reasons)},"usage":{usage},"timings":{timings}')

    async def _fail(self, error: ApiError) -> None:
        body = {**error.frame_body(), "retry_after_s": error.retry_after_s}
        await self._send_numbered("error", f'"error":{encode(body)}')

    async def _send_numbered(self, kind: str, fields: str) -> None:
        self._seq += 1
        await self._send(kind, f'"seq":{self._seq},{fields}')

    async def _send(self, kind: str, fields: str) -> None:
        await self._socket.send_frame(f'{{"type":"{kind}","id":{self._id},{fields}}}')


def timings_json(records: Sequence[pb.UsageRecord]) -> dict[str, int]:
    """Milliseconds by the engine's clock; the longest of several prompts."""
    names = ("queue_ms", "adapter_load_ms", "first_token_ms", "prefill_ms", "decode_ms")
    return {name: max((getattr(record, name) for record in records), default=0) for name in names}


def _logprobs(entries: Sequence[pb.TokenLogprob]) -> list[dict[str, Any]]:
    return [
        {
            "token": entry.token,
            "logprob": entry.logprob,
            "top": [{"token": top.token, "logprob": top.logprob} for top in entry.top],
        }
        for entry in entries
    ]
