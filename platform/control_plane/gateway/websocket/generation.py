"""A generation on a websocket: its frames are numbered, and kept for a client that reconnects."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from prometheus_client import Counter

from control_plane.billing.usage.counters import TIMES
from control_plane.core import drain
from control_plane.core.http.metrics import SOCKET_ERRORS
from control_plane.fleet.transport.coalescing import Chunk
from control_plane.gateway.dispatch import errors
from control_plane.gateway.dispatch.errors import ApiError, invalid
from control_plane.gateway.dispatch.generation import Generation, begin
from control_plane.gateway.dispatch.json_encoding import encode
from control_plane.gateway.dispatch.runtime import runtime
from control_plane.gateway.openai.chat_request import ChatCompletionRequest
from control_plane.gateway.openai.completion_request import CompletionRequest
from control_plane.gateway.openai.parameters import read_parameters
from control_plane.gateway.openai.prompt_parts import PromptParts
from control_plane.gateway.openai.response_writers import (
    ChatShape,
    CompletionShape,
    logprobs_json,
    of_prompt,
    tool_call_json,
    usage_json,
)
from control_plane.gateway.recording.refusals import Undispatched
from control_plane.identity.access.principal import Principal
from lora_engine.wire import engine_pb2 as pb

Send = Callable[[str], Awaitable[None]]
# Bytes of frames that one generation keeps for a client that reconnects; the oldest are dropped.
MAX_KEPT_BYTES = 1 << 20
PATH = "/ws/inference"
GENERATIONS = Counter("lorikeet_socket_generations", "Generations on websockets, by their end.", ["outcome"])
for _outcome in ("done", "failed", "cancelled", "aborted"):  # the first failure must be visible as a step from 0
    GENERATIONS.labels(_outcome)


class SocketLostError(Exception):
    """The socket broke, and its generation, which cannot be resumed, ends with it."""


class SocketGeneration:
    """A task that ends by itself, by ``cancel``, or with its socket; if ``resumable``, some time after that."""

    def __init__(self, name: str, body: dict[str, Any], principal: Principal, send: Send, *, resumable: bool) -> None:
        self._principal, self._body = principal, body
        self._send_frame: Send | None = send
        self.resumable = resumable
        self.at_end: Callable[[], object] = lambda: None
        self._accepted = ""
        self._kept: deque[tuple[int, str]] = deque()
        self._kept_bytes = 0
        self._id = encode(name)
        self._seq = 0
        self._name = name
        self._begun: set[int] = set()
        self._reasons: dict[int, str] = {}
        self._violations: list[dict[str, Any]] = []
        self._generation: Generation | None = None
        self._cancelled = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"ws-{self._name}")
        self._task.add_done_callback(lambda _task: self.at_end())

    def cancel(self) -> None:
        """Stop generating; the client still receives the output made so far, and the usage."""
        self._cancelled = True
        if self._generation is not None:
            self._generation.abort()

    def end(self) -> None:
        """Abort the generation: its client will not return."""
        if self._task is not None:
            self._task.cancel()

    @property
    def over(self) -> bool:
        return self._task is not None and self._task.done()

    # -- a socket that breaks, and the next one ----------------------------------

    @property
    def kept_bytes(self) -> int:
        return self._kept_bytes

    def has_after(self, seq: int) -> bool:
        """Return whether all frames after frame ``seq`` are kept."""
        return not self._kept or self._kept[0][0] <= seq + 1

    def detach(self) -> None:
        """Continue without a socket."""
        self._send_frame = None

    async def attach(self, send: Send, after: int) -> bool:
        """Send the frames after ``after`` again, then new ones. Returns False if some are no longer kept."""
        self._send_frame = None
        if not self.has_after(after):
            return False
        if self._accepted:
            await send(self._accepted)
        while missed := [(seq, frame) for seq, frame in self._kept if seq > after]:
            for seq, frame in missed:
                await send(frame)
                after = seq
        self._send_frame = send  # no await since the last check, so no frame was missed
        return True

    # -- the generation ------------------------------------------------------------

    async def _run(self) -> None:
        outcome = "aborted"  # by the end of its socket
        try:
            with drain.working():
                await self._generate()
            outcome = "cancelled" if self._cancelled else "done"
        except SocketLostError:
            pass
        except Exception as error:
            outcome, failure = "failed", errors.of(error)
            SOCKET_ERRORS.labels(PATH, failure.code).inc()
            with suppress(SocketLostError):
                await self._fail(failure)
        finally:
            GENERATIONS.labels(outcome).inc()

    async def _generate(self) -> None:
        with undispatched(self._principal, self._body) as pending:
            settings = await runtime().admission_cache.api_settings(self._principal.tenant)
            with pending.reading():
                params = self._read(refuse_unknown=settings.refuse_unknown_fields)
            admission = await runtime().admission_cache.admission(self._principal, params.model)
            begun = await begin(runtime(), admission, params, streamed=True)
        async with begun as generation:
            self._generation = generation
            await self._send("accepted", f'"request_id":{encode(generation.request_id)},"model":{encode(params.model)}')
            if self._cancelled:
                generation.abort()
            prompts = params.prompt_parts()
            shape = _shape(params, prompts)
            async for chunks in generation:
                for chunk in prompts.ready(chunks):
                    await self._delta(chunk, params, shape, prompts)
            await self._done(generation, params.total_choices)

    def _read(self, *, refuse_unknown: bool) -> ChatCompletionRequest | CompletionRequest:
        # `stream` is an option of HTTP: a socket always streams.
        body = {name: value for name, value in self._body.items() if name not in ("stream", "stream_options")}
        if body.get("prompt") is not None and body.get("messages") is not None:
            raise invalid("The request has a prompt and messages.", "Send one of them.", "messages")
        params = read_parameters(_kind(body), body, refuse_unknown=refuse_unknown)
        return params.model_copy(update={"stream": True})

    async def _delta(
        self,
        chunk: Chunk,
        params: ChatCompletionRequest | CompletionRequest,
        shape: ChatShape | CompletionShape,
        prompts: PromptParts,
    ) -> None:
        index = chunk.choice
        if index not in self._begun:
            self._begun.add(index)
            if beginning := _beginning(index, params, shape, prompts):
                await self._send_numbered("delta", f'"choice":{index},"tokens":0,{encode(beginning)[1:-1]}')
        if chunk.finish_reason:
            self._reasons[index] = chunk.finish_reason
            self._violations += [{"choice": index, **violation} for violation in chunk.violations]
        chat = ""
        if chunk.reasoning:
            chat += f',"reasoning":{encode(chunk.reasoning)}'
        if chunk.tool_calls:
            chat += f',"tool_calls":{encode([tool_call_json(call) for call in chunk.tool_calls])}'
        logprobs = f',"logprobs":{encode(logprobs_json(shape, index, chunk.logprobs))}' if chunk.logprobs else ""
        ids = f',"token_ids":{encode(chunk.token_ids)}' if chunk.token_ids else ""
        await self._send_numbered(
            "delta", f'"choice":{index},"text":{encode(chunk.text)},"tokens":{chunk.tokens}{chat}{logprobs}{ids}'
        )

    async def _done(self, generation: Generation, choices: int) -> None:
        reasons = [self._reasons.get(choice, "abort") for choice in range(choices)]
        usage, timings = encode(usage_json(generation.usages)), encode(timings_json(generation.usages))
        ignored = f',"ignored":{encode(generation.ignored)}' if generation.ignored else ""
        if self._violations:
            ignored += f',"schema_violations":{encode(self._violations)}'
        await self._send_numbered(
            "done", f'"finish_reason":{encode(reasons)},"usage":{usage},"timings":{timings}{ignored}'
        )

    async def _fail(self, error: ApiError) -> None:
        body = {**error.frame_body(), "retry_after_s": error.retry_after_s}
        await self._send_numbered("error", f'"error":{encode(body)}')

    async def _send_numbered(self, kind: str, fields: str) -> None:
        self._seq += 1
        await self._send(kind, f'"seq":{self._seq},{fields}')

    async def _send(self, kind: str, fields: str) -> None:
        frame = f'{{"type":"{kind}","id":{self._id},{fields}}}'
        if self.resumable:
            self._keep(frame)
        if self._send_frame is None:
            return
        try:
            await self._send_frame(frame)
        except OSError:  # the socket broke; its consumer is notified, and detaches or ends this generation
            if not self.resumable:
                raise SocketLostError from None
            self._send_frame = None

    def _keep(self, frame: str) -> None:
        if self._seq == 0:
            self._accepted = frame
            return
        self._kept.append((self._seq, frame))
        self._kept_bytes += len(frame)
        while self._kept_bytes > MAX_KEPT_BYTES:
            self._kept_bytes -= len(self._kept.popleft()[1])


def _kind(body: Mapping[str, Any]) -> type[ChatCompletionRequest | CompletionRequest]:
    return CompletionRequest if "prompt" in body else ChatCompletionRequest


def _shape(params: ChatCompletionRequest | CompletionRequest, prompts: PromptParts) -> ChatShape | CompletionShape:
    """Return the format of log-probabilities: OpenAI's for the same body."""
    if isinstance(params, ChatCompletionRequest):
        return ChatShape(logprobs=True, as_ids=bool(params.return_tokens_as_token_ids))
    return CompletionShape(params, prompts)


def _beginning(
    index: int,
    params: ChatCompletionRequest | CompletionRequest,
    shape: ChatShape | CompletionShape,
    prompts: PromptParts,
) -> dict[str, Any]:
    """Return what precedes a choice's output: its prompt if that is echoed, and the prompt's log-probabilities."""
    text, logprobs = ("", None) if isinstance(shape, ChatShape) else shape.echo(index)
    report: dict[str, Any] = {} if logprobs is None else {"logprobs": logprobs}
    report |= of_prompt(params, prompts.of(index))
    return {"text": text, **report} if text or report else {}


def undispatched(principal: Principal, body: object) -> Undispatched:
    """Return a context that counts a refusal of a generation, whose body may be of any type."""
    params = body if isinstance(body, dict) else {}
    model = params.get("model")
    return runtime().refusals.until_dispatched(
        principal, _kind(params).endpoint, model if isinstance(model, str) else ""
    )


def timings_json(records: Sequence[pb.UsageRecord]) -> dict[str, int]:
    """Return the durations by the engine's clock, in milliseconds; the longest of several prompts."""
    return {name: max((getattr(record, name) for record in records), default=0) for name in TIMES}
