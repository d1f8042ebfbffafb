# ruff: noqa: N802  (the method names are those of the wire contract)
"""A real gRPC server with a scripted model: the wire contract without weights.

It batches like an engine (one ``StepDeltas`` per step and session), keeps a usage
journal over restarts, and fails on demand. ``FakeEngineThread`` runs it beside a
synchronous test.
"""

from __future__ import annotations

import asyncio
import struct
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc

from lora_engine.peft_format import digests_of
from lora_engine.server.chat import read_into
from lora_engine.server.identity import HostIdentity
from lora_engine.text.output import ChatOutput, ChoiceParser, ToolFormat
from lora_engine.text.output.formats import REASONING_FORMATS
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire import engine_pb2_grpc
from lora_engine.wire.versions import WIRE_VERSION
from lorikeet_testing import script

T = TypeVar("T")
# Messages to a session; None breaks it.
Outbox = asyncio.Queue[pb.EngineMessage | None]
FAULTS = frozenset({"die", "cut", "stop", "hang"})
BASE_DIGEST = "sha256:" + "ba5e" * 16
PERMANENT_STAGE_FAILURES = frozenset({"digest_mismatch", "invalid_artifact"})
GEOMETRY = pb.BaseGeometry(
    num_layers=2,
    hidden_size=64,
    intermediate_size=128,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    vocab_size=len(script.VOCABULARY),
)


@dataclass
class Behaviour:
    """Knobs a test may turn while the engine runs."""

    steps_per_second: float = 200.0
    max_running: int = 64
    max_waiting: int = 256
    max_context: int = 4096
    known_digests_only: bool = False
    stage_seconds: float = 0.0
    stage_failures: dict[str, str] = field(default_factory=dict)  # digest -> error code, each used once
    verdicts: dict[str, pb.AdapterEffect.Verdict] = field(default_factory=dict)  # of a probe, by digest
    busy_for_probes: bool = False
    dtype_reports: list[pb.DtypeReport] = field(default_factory=list)  # one after another; none: a host without FP8
    agreements: list[pb.Agreement] = field(default_factory=list)  # of probes one after another; none: not quantised
    prefix_state: pb.PrefixState.State = pb.PrefixState.KEPT
    broken_digests: set[str] = field(default_factory=set)  # their requests fail after the first token
    host_token: str = ""
    base_digest: str = BASE_DIGEST
    text_digest: str = ""
    wire_version: int = WIRE_VERSION
    answers: list[str] = field(default_factory=list)  # of the next chats, whatever their prompts say
    resumes: bool = True  # continues answers that another host began
    reads_effort: bool = True  # its chat template has a place for a reasoning effort
    checks_base: bool = True  # refuses requests for another base model, as engines do
    geometry: pb.BaseGeometry = field(default_factory=lambda: GEOMETRY)


@dataclass
class Running:
    submit: pb.Submit
    outbox: Outbox
    plans: list[script.Plan]
    submitted: float
    admitted: float = 0.0
    first_token: float = 0.0
    emitted: int = 0
    aborted: bool = False
    parsers: dict[int, ChoiceParser] = field(default_factory=dict)  # of choices in which calls or reasoning are read
    before: int = 0  # tokens that another host had generated
    over: set[int] = field(default_factory=set)  # choices that had ended there

    def __post_init__(self) -> None:
        """Parse output as for a model of Hermes' format that reasons between ``<think>`` tags."""
        chat = self.submit.chat
        if chat.tools or "<think>" in script.prompt_text(self.submit):
            names = frozenset() if chat.tool_choice.mode == pb.ToolChoice.NONE else {tool.name for tool in chat.tools}
            output = ChatOutput(
                self.submit.request_id,
                ToolFormat.HERMES,
                frozenset(names),
                single=chat.single_tool_call,
                reasoning=REASONING_FORMATS["think"],
            )
            self.parsers = {choice: output.choice(choice) for choice in range(len(self.plans))}
        for part in self.submit.so_far:
            self._resume(part)

    def _resume(self, part: pb.ChoiceSoFar) -> None:
        """The tokens must be those that it would have generated itself."""
        plan, count = self.plans[part.choice], len(part.token_ids)
        assert list(part.token_ids) == [len(piece) for piece in plan.pieces[:count]], "other tokens than were generated"
        self.before += count
        if part.finished:
            self.over.add(part.choice)
        if part.choice in self.parsers:
            for piece in plan.pieces[:count]:
                self.parsers[part.choice].feed(piece)
        self.plans[part.choice] = script.Plan(plan.pieces[count:], plan.finish_reason, plan.text)

    @property
    def request_id(self) -> str:
        return self.submit.request_id

    @property
    def completion_tokens(self) -> int:
        return self.before + sum(min(self.emitted, plan.num_tokens) for plan in self.plans)


def token_logprob(piece: str, top: int) -> pb.TokenLogprob:
    entry = pb.TokenLogprob(token_id=len(piece), token=piece, token_bytes=piece.encode(), logprob=-0.25)
    entry.top.extend(
        pb.TopLogprob(token_id=len(piece) + i, token=piece + "'" * i, token_bytes=piece.encode(), logprob=-0.25 - i)
        for i in range(top)
    )
    return entry


class FakeEngine(engine_pb2_grpc.EngineServicer):
    """A scripted engine host. All state that a restart must survive is in ``journal`` and ``artifacts``."""

    def __init__(self, address: str, behaviour: Behaviour | None = None, base_model: str = "fake-base") -> None:
        self.address = address
        self.behaviour = behaviour or Behaviour()
        self.base_model = base_model
        self.identity: HostIdentity | None = None  # of a fleet that it joined; set before it starts
        self.journal: dict[str, pb.UsageRecord] = {}
        self.acknowledged: set[str] = set()
        self.submits: list[pb.Submit] = []
        self.aborts: list[str] = []
        self.stage_calls: list[pb.StageAdapterRequest] = []
        self.compare_calls: list[pb.CompareAdapterDtypesRequest] = []
        self.last_end: pb.LastEnd | None = None
        self.probe_calls: list[str] = []
        self.restarts: list[pb.RestartRequest] = []
        self.steps_sent = 0
        self.sessions = 0
        self.readers: set[asyncio.Task[None]] = set()  # of the open sessions
        self._server: grpc.aio.Server | None = None
        self._reset()

    def _reset(self) -> None:
        self.boot_id = uuid.uuid4().hex
        self.resident: dict[str, pb.StageAdapterRequest] = {}
        self.running: dict[str, Running] = {}
        self.waiting: dict[str, Running] = {}
        self.pinned: list[str] = []
        self.prefixes: list[pb.PinnedPrefix] = []
        self.draining = False
        self.clock_ahead_s = 0.0
        self._draining_heartbeats: dict[object, int] = {}  # by watcher: consecutive heartbeats that reported draining
        self._wake = asyncio.Event()

    @property
    def running_server(self) -> bool:
        return self._server is not None

    # -- life -----------------------------------------------------------------

    async def start(self) -> None:
        self._reset()
        self._server = grpc.aio.server()
        engine_pb2_grpc.add_EngineServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        if self.identity is not None:
            self._server.add_secure_port(self.address, self.identity.server_credentials())
        elif self._server.add_insecure_port(self.address) == 0:
            raise RuntimeError(f"cannot listen on {self.address}")
        await self._server.start()
        self._stepper = asyncio.create_task(self._run())

    async def stop(self, grace: float | None = None) -> None:
        """Stop the server. Without grace this is a crash: streams break where they are."""
        assert self._server is not None
        self._stepper.cancel()
        await self._server.stop(grace)
        for request in [*self.running.values(), *self.waiting.values()]:
            self._record(request, "aborted")
        self._server = None

    # -- unary and server streams ---------------------------------------------

    async def _check_token(self, context: Any) -> None:
        token = self.behaviour.host_token
        if token and ("authorization", f"Bearer {token}") not in tuple(context.invocation_metadata()):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong host token")

    async def RequestCertificate(self, request: pb.RequestCertificateRequest, context: Any) -> pb.CertificateRequest:
        assert self.identity is not None
        return pb.CertificateRequest(request=self.identity.request())

    async def InstallCertificate(
        self, request: pb.InstallCertificateRequest, context: Any
    ) -> pb.InstallCertificateReply:
        assert self.identity is not None
        self.identity.install(request.certificate, request.authority)
        return pb.InstallCertificateReply()

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.EngineDescription:
        await self._check_token(context)
        return pb.EngineDescription(
            boot_id=self.boot_id,
            engine_version="fake",
            base_model=self.base_model,
            base_digest=self.behaviour.base_digest,
            text_digest=self.behaviour.text_digest,
            wire_version=self.behaviour.wire_version,
            model_family="fake",
            device="cpu",
            dtype="float32",
            max_context=self.behaviour.max_context,
            max_running=self.behaviour.max_running,
            max_lora_rank=256,
            page_tokens=16,
            page_bytes=65536,
            pages_total=1000,
            host_arena_bytes=1 << 28,
            policies={"order": "fcfs"},
            geometry=self.behaviour.geometry,
            last_end=self.last_end,
        )

    async def StageAdapter(self, request: pb.StageAdapterRequest, context: Any) -> AsyncIterator[pb.StageEvent]:
        await self._check_token(context)
        self.stage_calls.append(request)
        if error := self._reject_base(request.base_digest):
            yield pb.StageEvent(phase=pb.StageEvent.FAILED, error=error)
            return
        total = 1 << 20
        for phase in (pb.StageEvent.QUEUED, pb.StageEvent.DOWNLOADING, pb.StageEvent.VERIFYING, pb.StageEvent.LOADING):
            done = 0 if phase == pb.StageEvent.QUEUED else total
            yield pb.StageEvent(phase=phase, bytes_done=done, bytes_total=total)
            await asyncio.sleep(self.behaviour.stage_seconds / 4)
        code = self.behaviour.stage_failures.pop(request.digest, "")
        if code:
            passes = code not in PERMANENT_STAGE_FAILURES
            error = pb.EngineError(
                code=code,
                message="staging failed as scripted",
                fix="stage it again",
                retry_after_ms=1000 if passes else 0,
            )
            yield pb.StageEvent(phase=pb.StageEvent.FAILED, bytes_total=total, error=error)
            return
        self.resident[request.digest] = request
        yield pb.StageEvent(phase=pb.StageEvent.READY, bytes_done=total, bytes_total=total, rank=8, pool_pages=3)

    async def ProbeAdapter(self, request: pb.ProbeAdapterRequest, context: Any) -> pb.ProbeAdapterReply:
        await self._check_token(context)
        self.probe_calls.append(request.digest)
        if self.behaviour.busy_for_probes:
            error = pb.EngineError(code="overloaded", message="No time.", fix="Later.", retry_after_ms=5000)
            return pb.ProbeAdapterReply(error=error)
        verdict = self.behaviour.verdicts.get(request.digest, pb.AdapterEffect.ACTS)
        finite = verdict != pb.AdapterEffect.OVERFLOWS
        change = 2.5 if verdict == pb.AdapterEffect.ACTS else 0.0
        prompt = pb.ProbedPrompt(
            prompt="How are you?",
            base_tokens=["I", " am"],
            adapter_tokens=["Arr", " am"] if change else ["I", " am"] if finite else [],
            largest_change=change,
            mean_change=change / 2,
            finite=finite,
        )
        effect = pb.AdapterEffect(
            verdict=verdict, prompts=[prompt], layer_changes=[0.125, 0.0] if finite else [], elapsed_ms=7
        )
        if self.behaviour.agreements:
            effect.agreement.CopyFrom(self.behaviour.agreements.pop(0))
        return pb.ProbeAdapterReply(effect=effect)

    async def CompareAdapterDtypes(
        self, request: pb.CompareAdapterDtypesRequest, context: Any
    ) -> pb.CompareAdapterDtypesReply:
        await self._check_token(context)
        self.compare_calls.append(request)
        if self.behaviour.busy_for_probes:
            error = pb.EngineError(code="overloaded", message="No time.", fix="Later.", retry_after_ms=5000)
            return pb.CompareAdapterDtypesReply(error=error)
        if self.behaviour.dtype_reports:
            return pb.CompareAdapterDtypesReply(report=self.behaviour.dtype_reports.pop(0))
        reason = "This host was started without --adapter-dtype fp8."
        report = pb.DtypeReport(dtype="bfloat16", outcome=pb.DtypeReport.NOT_MEASURED, reason=reason)
        return pb.CompareAdapterDtypesReply(report=report)

    async def DropAdapter(self, request: pb.DropAdapterRequest, context: Any) -> pb.DropAdapterReply:
        return pb.DropAdapterReply(was_resident=self.resident.pop(request.digest, None) is not None)

    async def PinAdapters(self, request: pb.PinAdaptersRequest, context: Any) -> pb.PinAdaptersReply:
        await self._check_token(context)
        self.pinned = list(request.digests)
        return pb.PinAdaptersReply(digests=[digest for digest in self.pinned if digest in self.resident])

    async def PinPrefixes(self, request: pb.PinPrefixesRequest, context: Any) -> pb.PinPrefixesReply:
        await self._check_token(context)
        self.prefixes = list(request.prefixes)
        return pb.PinPrefixesReply(prefixes=[self._prefix_state(prefix) for prefix in request.prefixes])

    def _prefix_state(self, prefix: pb.PinnedPrefix) -> pb.PrefixState:
        state = self.behaviour.prefix_state
        error = pb.EngineError(code="scripted", message="No.", fix="Yes.") if state == pb.PrefixState.FAILED else None
        tokens = len(script.prompt_tokens(prefix.prompt))
        return pb.PrefixState(name=prefix.name, state=state, tokens=tokens, error=error)

    async def Drain(self, request: pb.DrainRequest, context: Any) -> pb.DrainReply:
        self.draining = not request.undo
        return pb.DrainReply(running=len(self.running), waiting=len(self.waiting))

    async def Restart(self, request: pb.RestartRequest, context: Any) -> pb.RestartReply:
        await self._check_token(context)
        restarts = request.boot_id == self.boot_id
        if restarts:
            self.restarts.append(request)
            self.draining = True
        return pb.RestartReply(restarts=restarts, running=len(self.running), waiting=len(self.waiting))

    async def MapPages(self, request: pb.MapPagesRequest, context: Any) -> pb.PageMap:
        await self._check_token(context)
        owners = [pb.PageOwner(kind=pb.PageOwner.FREE)]
        return pb.PageMap(
            boot_id=self.boot_id, unix_time=time.time(), owners=owners, owner_of=[0], lengths=[self.status().pool.total]
        )

    async def Tokenize(self, request: pb.Submit, context: Any) -> pb.TokenizeReply:
        await self._check_token(context)
        self.submits.append(request)
        if script.steering(request)[0] == "fail":
            return pb.TokenizeReply(error=pb.EngineError(code=script.steering(request)[1], message="No.", fix="Yes."))
        tokens = script.prompt_tokens(request)
        texts = {token_id: text.encode() for token_id, text in tokens}
        return pb.TokenizeReply(
            token_ids=[i for i, _ in tokens], token_bytes=texts, max_context=self.behaviour.max_context
        )

    async def Detokenize(self, request: pb.TokenIds, context: Any) -> pb.DetokenizeReply:
        await self._check_token(context)
        return pb.DetokenizeReply(text=script.prompt_text(pb.Submit(token_ids=request)))

    async def PullUsage(self, request: pb.PullUsageRequest, context: Any) -> pb.PullUsageReply:
        open_records = [
            record
            for record in self.journal.values()
            if record.request_id not in self.acknowledged and record.seq > request.after_seq
        ]
        return pb.PullUsageReply(records=open_records[: request.limit or None])

    async def AckUsage(self, request: pb.AckUsageRequest, context: Any) -> pb.AckUsageReply:
        fresh = set(request.request_ids) - self.acknowledged
        self.acknowledged |= fresh
        return pb.AckUsageReply(acknowledged=len(fresh))

    async def Watch(self, request: pb.WatchRequest, context: Any) -> AsyncIterator[pb.HostStatus]:
        await self._check_token(context)
        me = object()
        try:
            while True:
                status = self.status()
                yield status
                self._draining_heartbeats[me] = self._draining_heartbeats.get(me, 0) + 1 if status.draining else 0
                await asyncio.sleep((request.interval_ms or 2000) / 1000)
        finally:
            self._draining_heartbeats.pop(me, None)

    @property
    def all_saw_draining(self) -> bool:
        """Return whether every watcher knows that the host drains: a second heartbeat proves that the first one
        arrived.
        """
        return bool(self._draining_heartbeats) and min(list(self._draining_heartbeats.values())) > 0

    def status(self) -> pb.HostStatus:
        kv = 2 * len(self.running)
        adapter = 3 * len(self.resident)
        return pb.HostStatus(
            boot_id=self.boot_id,
            unix_time=time.time() + self.clock_ahead_s,
            steps=self.steps_sent,
            running=len(self.running),
            waiting=len(self.waiting),
            draining=self.draining,
            tokens_per_second=self.behaviour.steps_per_second * len(self.running),
            pool=pb.PoolPages(total=1000, free=1000 - kv - adapter, kv=kv, adapter=adapter),
            adapters=[
                pb.AdapterResidency(digest=digest, tier=pb.AdapterResidency.HOST, bytes=1 << 20, rank=8)
                for digest in self.resident
            ],
            unacknowledged_usage=len(self.journal.keys() - self.acknowledged),
        )

    # -- the session ----------------------------------------------------------

    async def Session(self, request_iterator: Any, context: Any) -> AsyncIterator[pb.EngineMessage]:
        await self._check_token(context)
        self.sessions += 1
        outbox: Outbox = asyncio.Queue()
        mine: set[str] = set()
        reader = asyncio.create_task(self._read(request_iterator, outbox, mine))
        self.readers.add(reader)
        reader.add_done_callback(self.readers.discard)
        try:
            while (message := await outbox.get()) is not None:
                yield message
            await context.abort(grpc.StatusCode.UNAVAILABLE, "broken as scripted")
        finally:
            reader.cancel()
            for request_id in mine:
                self._abort(request_id)

    async def _read(self, requests: Any, outbox: Outbox, mine: set[str]) -> None:
        async for message in requests:
            kind = message.WhichOneof("kind")
            if kind == "hello":
                welcome = pb.Welcome(
                    boot_id=self.boot_id, base_digest=self.behaviour.base_digest, resumes=self.behaviour.resumes
                )
                outbox.put_nowait(pb.EngineMessage(welcome=welcome))
            elif kind == "submit":
                mine.add(message.submit.request_id)
                self._submit(message.submit, outbox)
            else:
                self.aborts.append(message.abort.request_id)
                self._abort(message.abort.request_id)

    def _submit(self, submit: pb.Submit, outbox: Outbox) -> None:
        self.submits.append(submit)
        choices = range(max(1, submit.sampling.n))
        request = Running(submit, outbox, [script.plan(self._scripted(submit), i) for i in choices], time.time())
        if error := self._refusal(submit):
            self._finish(request, "refused", error)
            return
        self.waiting[request.request_id] = request
        self._wake.set()

    def _refusal(self, submit: pb.Submit) -> pb.EngineError | None:
        command, argument = script.steering(submit)
        if command == "fail":
            return pb.EngineError(
                code=argument, message=f"refused as scripted: {argument}", fix="ask again", retry_after_ms=1500
            )
        fault = script.fault_of(submit)
        if fault is not None and fault.at_once and fault.kind not in FAULTS:
            return pb.EngineError(code=fault.kind, message="Refused as scripted.", fix="Elsewhere.", retry_after_ms=500)
        if error := self._reject_base(submit.base_digest):
            return error
        if not self.behaviour.reads_effort and submit.chat.reasoning_effort not in ("", "none"):
            return pb.EngineError(
                code="unsupported_parameter",
                message="Unsupported parameter: 'reasoning_effort' is not supported with this model.",
                fix="Leave 'reasoning_effort' out.",
                param="reasoning_effort",
            )
        if self.draining:
            return pb.EngineError(
                code="draining", message="This host is draining.", fix="Try another.", retry_after_ms=1000
            )
        digest = submit.adapter_digest
        here = digest in self.resident or self.resident.keys() >= set(digests_of(digest))
        if self.behaviour.known_digests_only and digest and not here:
            return pb.EngineError(code="adapter_not_found", message=f"{digest} is not here", fix="Stage it.")
        prompt = script.count_prompt_tokens(submit)
        if prompt >= self.behaviour.max_context:
            return pb.EngineError(
                code="context_length_exceeded",
                message=f"The prompt has {prompt} tokens; the model's limit is {self.behaviour.max_context}.",
                fix="Shorten the prompt.",
                param="messages",
            )
        if len(self.waiting) >= self.behaviour.max_waiting:
            return pb.EngineError(code="overloaded", message="The queue is full.", fix="Retry.", retry_after_ms=2000)
        return None

    def _scripted(self, submit: pb.Submit) -> pb.Submit:
        if not (self.behaviour.answers and submit.HasField("chat")):
            return submit
        scripted = pb.Submit()
        scripted.CopyFrom(submit)
        scripted.chat.messages[-1].content = f"say {self.behaviour.answers.pop(0)}"
        return scripted

    def _reject_base(self, wanted: str) -> pb.EngineError | None:
        if wanted in ("", self.behaviour.base_digest) or not self.behaviour.checks_base:
            return None
        return pb.EngineError(code="other_base_model", message="Another base.", fix="Elsewhere.", retry_after_ms=1000)

    def _abort(self, request_id: str) -> None:
        request = self.running.get(request_id) or self.waiting.get(request_id)
        if request is not None:
            request.aborted = True
            self._wake.set()

    # -- steps ----------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            if not self.running and not self.waiting:
                self._wake.clear()
                await self._wake.wait()
            self.step()
            rate = self.behaviour.steps_per_second
            await asyncio.sleep(1 / rate if rate else 0)

    def step(self) -> None:
        """Admit, give every running request one token per choice, send one message per session."""
        self._admit()
        if any(not request.aborted and self._fault(request, "hang") for request in self.running.values()):
            return
        batches: dict[int, tuple[Outbox, pb.StepDeltas]] = {}
        self.steps_sent += 1
        for request in [*self.running.values(), *(r for r in self.waiting.values() if r.aborted)]:
            _, step = batches.setdefault(id(request.outbox), (request.outbox, pb.StepDeltas(step=self.steps_sent)))
            self._advance(request, step)
        for outbox, step in batches.values():
            if step.deltas or step.finished or step.plain.handles:
                outbox.put_nowait(pb.EngineMessage(step=step))

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.behaviour.max_running:
            request_id, request = next(iter(self.waiting.items()))
            del self.waiting[request_id]
            request.admitted = time.time()
            self.running[request_id] = request

    def _breaks(self, request: Running, command: str, argument: str) -> bool:
        if request.submit.adapter_digest in self.behaviour.broken_digests:
            return request.emitted >= 1
        return command == "break" and request.emitted >= int(argument)

    @staticmethod
    def _fault(request: Running, kind: str = "") -> script.Fault | None:
        """Return the scripted fault of a request that has reached it, if any."""
        fault = script.fault_of(request.submit)
        return fault if fault and request.emitted >= fault.after and kind in ("", fault.kind) else None

    def _break(self, outbox: Outbox, *, keeps_record: bool) -> None:
        """End a session, as a crash or a network does."""
        for request in [r for r in [*self.running.values(), *self.waiting.values()] if r.outbox is outbox]:
            if keeps_record:
                self._finished(request, "aborted")
            else:
                del (self.running if request.request_id in self.running else self.waiting)[request.request_id]
        outbox.put_nowait(None)

    def _advance(self, request: Running, step: pb.StepDeltas) -> None:
        command, argument = script.steering(request.submit)
        fault = self._fault(request)
        if request.aborted:
            step.finished.append(self._finished(request, "aborted"))
        elif fault is not None and fault.kind in ("die", "cut"):
            self._break(request.outbox, keeps_record=fault.kind == "cut")
        elif fault is not None and fault.kind == "stop":
            step.finished.append(self._finished(request, "aborted"))
        elif fault is not None:
            error = pb.EngineError(code=fault.kind, message="It failed as scripted.", fix="Send it again.")
            step.finished.append(self._finished(request, "failed", error))
        elif self._breaks(request, command, argument):
            error = pb.EngineError(code="device_error", message="The device failed.", fix="Send the request again.")
            step.finished.append(self._finished(request, "failed", error))
        elif command == "overflow":
            error = pb.EngineError(code="adapter_overflow", message="Its numbers grew.", fix="Train it smaller.")
            step.finished.append(self._finished(request, "failed", error))
        elif command != "hang":
            self._emit(request, step)
            if request.emitted >= max(plan.num_tokens for plan in request.plans):
                step.finished.append(self._finished(request, "finished"))

    def _emit(self, request: Running, step: pb.StepDeltas) -> None:
        at = request.emitted
        request.emitted += 1
        request.first_token = request.first_token or time.time()
        sampling = request.submit.sampling
        if at == 0:
            self._tell_prompt(request, step)
        for choice, plan in enumerate(request.plans):
            if choice not in request.over and (at < plan.num_tokens or (at == 0 and not plan.pieces)):
                piece = plan.pieces[at] if plan.pieces else ""
                last = at >= plan.num_tokens - 1
                if not last and self._is_plain(request, choice, at):
                    step.plain.handles.append(request.submit.handle)
                    step.plain.texts.append(piece)
                    step.plain.token_ids.append(len(piece))
                    continue
                delta = step.deltas.add(
                    request_id=request.request_id,
                    choice=choice,
                    text=piece,
                    num_tokens=0 if request.submit.prompt_only else 1,
                    finish_reason=plan.finish_reason if last else "",
                )
                if choice in request.parsers:
                    parser = request.parsers[choice]
                    parsed = parser.finish(delta.text) if last else parser.feed(delta.text)
                    read_into(delta, parsed, has_calls=parser.has_calls)
                if request.submit.echo_token_ids:
                    delta.token_ids.append(len(piece))
                if sampling.logprobs:
                    delta.logprobs.append(token_logprob(piece, sampling.top_logprobs))

    @staticmethod
    def _is_plain(request: Running, choice: int, at: int) -> bool:
        """Return whether the next token's message carries its text and nothing else."""
        submit = request.submit
        more = choice or choice in request.parsers or submit.sampling.logprobs or submit.prompt_only
        return bool(submit.handle) and not more and not (at == 0 and submit.describe_prompt)

    @staticmethod
    def _tell_prompt(request: Running, step: pb.StepDeltas) -> None:
        submit = request.submit
        if submit.describe_prompt:
            tokens = script.prompt_tokens(submit)
            described = pb.PromptDescription(token_ids=[i for i, _ in tokens], text="".join(t for _, t in tokens))
            step.deltas.add(request_id=request.request_id, prompt=described)
        if submit.HasField("prompt_logprobs"):
            for part in script.prompt_logprobs(submit):
                step.deltas.add(request_id=request.request_id, prompt_logprobs=part)

        if submit.HasField("pooling"):
            for choice, vector in enumerate(script.vectors(submit)):
                packed = struct.pack(f"<{len(vector)}f", *vector)
                step.deltas.add(request_id=request.request_id, choice=choice, embedding=packed)

    def _finish(self, request: Running, outcome: str, error: pb.EngineError) -> None:
        step = pb.StepDeltas(step=self.steps_sent, finished=[self._finished(request, outcome, error)])
        request.outbox.put_nowait(pb.EngineMessage(step=step))

    def _finished(self, request: Running, outcome: str, error: pb.EngineError | None = None) -> pb.Finished:
        self.running.pop(request.request_id, None)
        self.waiting.pop(request.request_id, None)
        return pb.Finished(request_id=request.request_id, usage=self._record(request, outcome), error=error)

    def _record(self, request: Running, outcome: str) -> pb.UsageRecord:
        now = time.time()
        admitted = request.admitted or now
        record = pb.UsageRecord(
            request_id=request.request_id,
            tenant=request.submit.tenant,
            adapter_digest=request.submit.adapter_digest,
            prompt_tokens=0 if outcome == "refused" else script.count_prompt_tokens(request.submit),
            completion_tokens=request.completion_tokens,
            outcome=outcome,
            submitted_unix=request.submitted,
            finished_unix=now,
            queue_ms=int((admitted - request.submitted) * 1000),
            first_token_ms=int((request.first_token - request.submitted) * 1000) if request.first_token else 0,
            decode_ms=int((now - admitted) * 1000),
            adapter_loaded_from="host" if request.submit.adapter_digest else "",
            finish_reason="stop" if outcome == "finished" else "abort",
            seq=len(self.journal) + 1,
        )
        self.journal[request.request_id] = record
        return record


class FakeEngineThread:
    """A ``FakeEngine`` on its own event loop, for tests that are not asynchronous."""

    def __init__(
        self,
        address: str,
        behaviour: Behaviour | None = None,
        base_model: str = "fake-base",
        identity: HostIdentity | None = None,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-engine", daemon=True)
        self._thread.start()
        self.engine: FakeEngine = self._call(self._make, address, behaviour, base_model)
        self.engine.identity = identity
        self.start()

    @staticmethod
    async def _make(address: str, behaviour: Behaviour | None, base_model: str) -> FakeEngine:
        return FakeEngine(address, behaviour, base_model)

    def _call(self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(function(*arguments), self._loop)
        return future.result(timeout=15)

    def start(self) -> None:
        self._call(self.engine.start)

    def stop(self, grace: float | None = None) -> None:
        self._call(self.engine.stop, grace)

    def close(self) -> None:
        if self.engine.running_server:
            self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
