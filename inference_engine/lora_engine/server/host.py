"""The engine host as its clients see it. It lives on the event loop; the engine runs in ``EngineLoop``'s thread."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from lora_engine.adapters.device_tier import DeviceAdapter
from lora_engine.adapters.download import Artifact
from lora_engine.adapters.load_times import LoadTime
from lora_engine.adapters.peers import Peer
from lora_engine.adapters.staging import AdapterTiers, Phase
from lora_engine.errors import RequestError
from lora_engine.memory import PoolStats
from lora_engine.model.unquantised import UnquantisedModel
from lora_engine.peft_format import is_combined
from lora_engine.request import GenerationRequest, RequestFinished, RequestUsage, StepOutput
from lora_engine.scheduling.merge_policies import MergeReport
from lora_engine.scheduling.prefill_budget import PrefillBudgetReport
from lora_engine.scheduling.scheduler_stats import QueueReport
from lora_engine.scheduling.sequence import detokenizer_for
from lora_engine.structured import Grammars
from lora_engine.text import Tokenizer
from lora_engine.text.output import ChatOutput, ChoiceParser
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire.adapter_list import Heartbeat
from lora_engine.wire.prompt_prefixes import RecentPrefixes, prefix_marks

from .adapter_probes import PROBING, AdapterProbes
from .base_agreement import BaseAgreement
from .chat import ChatFormat, read_into
from .engine_loop import EngineLike, EngineLoop
from .journal import UsageJournal
from .metrics import HostMetrics
from .prefix_pins import PrefixPins
from .session import ClientSession
from .tenant_threads import TenantThreads
from .translation import (
    accuracy_message,
    delta_message,
    detokenize,
    error_message,
    gap_message,
    generation_request,
    has_adapter_template,
    is_compiled,
    load_time_message,
    newcomer_message,
    page_map_message,
    prompt_description,
    prompt_size,
    stage_message,
    tenant_message,
    tokenize,
    usage_message,
    waiting_message,
)

log = logging.getLogger(__name__)

# Characters of a prompt above which it is tokenised off the event loop.
_LONG_PROMPT = 4000
# Seconds over which the token rate is measured.
_RATE_WINDOW_S = 2.0
# Seconds that a status waits for the current step before the last snapshot is sent.
_STATUS_PATIENCE_S = 1.0
# Seconds for which one load or heartbeat is shared between callers.
_LOAD_KEPT_S = 0.1
# Seconds that pinning waits for adapters that are being loaded, and between two checks.
_PIN_PATIENCE_S = 1.0
_PIN_POLL_S = 0.05


@dataclass(slots=True)
class Live:
    """A request between Submit and Finished. ``session`` is None once its client has disconnected."""

    submit: pb.Submit
    session: ClientSession | None
    submitted_unix: float
    handle: int = 0  # in its session
    is_in_engine: bool = False
    is_aborted: bool = False
    prompt: pb.PromptDescription | None = None  # sent with its first delta
    output: ChatOutput | None = None
    parsers: dict[int, ChoiceParser] = field(default_factory=dict)
    finish_reasons: set[str] = field(default_factory=set)
    prompt_tokens: int = 0  # in the engine; 0 again once they are computed

    @property
    def has_plain_output(self) -> bool:
        """True if tokens' texts are sent unchanged and the client accepts ``PlainTokens``."""
        return self.handle > 0 and self.output is None and self.prompt is None

    def resume(self, request: GenerationRequest, tokenizer: Tokenizer) -> None:
        """Feed the parsers with the text that another host has already delivered; nothing of it is sent."""
        for part in request.so_far if self.output is not None else ():
            parser, text = self._parser(part.choice), detokenizer_for(request, tokenizer)
            for token_id in part.token_ids:
                parser.feed(text.append(token_id))

    def read(self, message: pb.Delta) -> None:
        """Split a delta's text into reasoning, text and tool calls, if the answer is parsed."""
        if self.output is None:
            return
        parser = self._parser(message.choice)
        parsed = parser.finish(message.text) if message.finish_reason else parser.feed(message.text)
        read_into(message, parsed, has_calls=parser.has_calls)

    def _parser(self, choice: int) -> ChoiceParser:
        assert self.output is not None
        if choice not in self.parsers:
            self.parsers[choice] = self.output.choice(choice)
        return self.parsers[choice]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The engine's state between two steps."""

    steps: int
    running: int
    waiting: int
    pool: PoolStats
    prefix_tokens: int | None
    on_device: tuple[DeviceAdapter, ...]
    queue: QueueReport
    merging: MergeReport
    prefill_budget: PrefillBudgetReport
    device_load_time: LoadTime


class EngineHost:
    """The sessions, requests, staging and status of one engine process."""

    def __init__(
        self,
        engine: EngineLike,
        tokenizer: Tokenizer,
        chat_format: ChatFormat,
        tiers: AdapterTiers,
        journal: UsageJournal,
        description: pb.EngineDescription,
        grammars: Grammars,
        unquantised: UnquantisedModel | None = None,
    ) -> None:
        """Create the host. ``unquantised`` is the model to compare answers with, where the model is quantised."""
        self.description = description
        self.boot_id = description.boot_id = uuid.uuid4().hex
        self.journal = journal
        self.metrics = HostMetrics()
        self.prefixes = RecentPrefixes()
        self.draining = False
        self.adapter_readers = 0  # number of other hosts that are reading an adapter from here
        self.failed = asyncio.Event()  # set when the process should end once its requests have ended
        self.failure = ""  # reason for it
        self.restarts = asyncio.Event()  # set when an operator requested a restart
        self._restart_by = 0.0  # monotonic time at which the restart no longer waits for requests
        self._tokenizer = tokenizer
        self._chat_format = chat_format
        self._tiers = tiers
        self._grammars = grammars
        self._live: dict[str, Live] = {}
        self._being_recorded = 0  # finished requests whose usage is being written
        self._tasks: set[asyncio.Task[None]] = set()
        self._text_threads = TenantThreads(2, "text")
        self._template_threads = TenantThreads(2, "templates")  # adapters' chat templates, which may be slow
        # separate, as a large schema must not delay others' prompts
        self._grammar_threads = TenantThreads(2, "grammars")
        self._generated: deque[tuple[float, int]] = deque()
        self._loop = asyncio.get_running_loop()
        self._engine = EngineLoop(
            engine,
            lambda output: self._on_loop(self._on_output, output),
            lambda reason: self._on_loop(self._on_failure, reason),
        )
        self._agreement = (
            BaseAgreement(unquantised, tiers, tokenizer, lambda: self._engine.progress[1]) if unquantised else None
        )
        self._probes = AdapterProbes(self._engine, tiers, tokenizer, chat_format, grammars, self._agreement)
        self._prefix_pins = PrefixPins(
            self._engine,
            tiers,
            tokenizer,
            chat_format,
            self._template_threads,
            description.page_tokens,
            self._reject_base,
        )
        self._snapshot: Snapshot | None = None
        self._load: asyncio.Future[pb.HostStatus] | None = None
        self._load_at = 0.0
        self._heartbeat: asyncio.Future[Heartbeat] | None = None
        self._heartbeat_at = 0.0
        tiers.on_change = self._engine.wake

    def start(self) -> None:
        self._engine.start()
        self._grammar_threads.submit("", self._grammars.prepare)

    @property
    def step_progress(self) -> tuple[int, bool]:
        """The step thread's progress, for ``StepWatchdog``."""
        return self._engine.progress

    def stop(self) -> None:
        """End the step thread and write what is left in the journal."""
        if self._agreement is not None:
            self._agreement.close()
        self._prefix_pins.close()
        self._engine.stop()
        self._text_threads.close()
        self._grammar_threads.close()
        self._template_threads.close()
        self._chat_format.close()
        self._grammars.close()
        self._tiers.close()
        self.journal.close()

    @property
    def idle(self) -> bool:
        """True if no request is running and no usage is being written to the journal."""
        return not self._live and not self._being_recorded

    # Requests.

    def submit(self, session: ClientSession, submit: pb.Submit) -> None:
        """Accept a request. Any error becomes its ``Finished``."""
        live = Live(submit, session, time.time(), submit.handle)
        if error := self._refusal(submit):
            self._refuse(live, error)
            return
        self._live[submit.request_id] = live
        session.requests.add(submit.request_id)
        if submit.adapter_digest:
            self._tiers.hold(submit.adapter_digest)
        threads = self._threads_for(submit)
        if threads is not None:
            task = self._loop.create_task(self._prepare_on(threads, live))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._prepare(live)

    def abort(self, session: ClientSession, request_id: str) -> None:
        """End a request of this session early; unknown ids are ignored."""
        if request_id in session.requests and (live := self._live.get(request_id)):
            self._abort(live)

    def close_session(self, session: ClientSession) -> None:
        """End the requests of a client that disconnected; their usage stays in the journal."""
        for request_id in session.requests:
            if live := self._live.get(request_id):
                live.session = None
                self._abort(live)

    def abort_all(self) -> None:
        for live in list(self._live.values()):
            self._abort(live)

    def _refusal(self, submit: pb.Submit) -> RequestError | None:
        request_id, digest = submit.request_id, submit.adapter_digest
        if not request_id:
            return RequestError("invalid_request", "The request has no id.", "Give every request a unique request_id.",
                                param="request_id")  # fmt: skip
        if request_id in self._live or request_id in self.journal:
            return RequestError("duplicate_request", f"Request id {request_id} was used before.",
                                "Use a new request id for every request.", param="request_id")  # fmt: skip
        if error := self._reject_base(submit.base_digest):
            return error
        if self.draining:
            return RequestError("draining", "This host is draining and takes no new requests.",
                                "Send the request to another host, or try again.", retry_after_ms=1000)  # fmt: skip
        if self.journal.failing:
            return RequestError("journal_unavailable", "This host cannot write its usage journal.",
                                "Free space on the engine host's disk.", retry_after_ms=5000)  # fmt: skip
        if digest and not self._tiers.knows(digest):
            error = self._tiers.load_error(digest)
            return error or RequestError(
                "adapter_not_found",
                f"The adapter {digest[:80]} is not on this host.",
                "Stage the adapter on this host, or send the request to a host that has it.",
                param="model",
                retry_after_ms=1000,
            )
        return None

    def _reject_base(self, wanted: str) -> RequestError | None:
        """Return the error for requests to another base model, or None. Its answer would come from other weights."""
        served = self.description.base_digest
        if not wanted or wanted == served:
            return None
        return RequestError(
            "other_base_model",
            f"This host serves the base model {served[:19]}, and the request is for {wanted[:19]}.",
            "Send it to a host with that base model.",
            param="model",
            retry_after_ms=1000,
        )

    def _refuse(self, live: Live, error: RequestError) -> None:
        """Answer a request that never reached the engine; there is no usage to record."""
        submit = live.submit
        usage = RequestUsage(submit.request_id, submit.tenant, submit.adapter_digest, outcome="refused",
                             submitted_unix=live.submitted_unix, finished_unix=time.time())  # fmt: skip
        self._answer(live, 0, RequestFinished(submit.request_id, usage, error), usage_message(usage, error))

    def _prepare(self, live: Live) -> None:
        self._enter_or_refuse(live, self._translate(live))

    def _threads_for(self, submit: pb.Submit) -> TenantThreads | None:
        """Return the threads to prepare a request on that would block the event loop, else None."""
        if has_adapter_template(submit):
            return self._template_threads
        if not is_compiled(submit, self._chat_format, self._grammars):
            return self._grammar_threads
        return self._text_threads if prompt_size(submit) > _LONG_PROMPT else None

    async def _prepare_on(self, threads: TenantThreads, live: Live) -> None:
        translated = await threads.submit(live.submit.tenant, self._translate, live)
        self._enter_or_refuse(live, translated)

    def _translate(self, live: Live) -> GenerationRequest | RequestError:
        submit = live.submit
        try:
            request, live.output = generation_request(
                submit, self._tokenizer, self._chat_format, self._grammars, self.description.max_context
            )
            live.resume(request, self._tokenizer)
            if submit.describe_prompt:
                live.prompt = prompt_description(request, self._tokenizer)
            return request
        except RequestError as error:
            return error
        except Exception:
            log.exception("a request could not be read", extra={"request_id": submit.request_id})
            return RequestError("invalid_request", "The engine could not read this request.",
                                "Check the prompt and the sampling values.")  # fmt: skip

    def _enter_or_refuse(self, live: Live, translated: GenerationRequest | RequestError) -> None:
        if isinstance(translated, RequestError):
            self._forget(live)
            self._refuse(live, translated)
        else:
            self._enter(live, translated)

    def _enter(self, live: Live, request: GenerationRequest) -> None:
        if live.is_aborted:
            usage = RequestUsage(request.request_id, request.tenant, request.adapter_digest, outcome="aborted",
                                 submitted_unix=live.submitted_unix, finished_unix=time.time())  # fmt: skip
            self._record_finished(0, [RequestFinished(request.request_id, usage)])
            return
        live.is_in_engine, live.prompt_tokens = True, len(request.prompt_token_ids)
        self._engine.submit(request)

    def _abort(self, live: Live) -> None:
        live.is_aborted = True
        if live.is_in_engine:
            self._engine.abort(live.submit.request_id)

    def _forget(self, live: Live) -> None:
        del self._live[live.submit.request_id]
        if live.submit.adapter_digest:
            self._tiers.release(live.submit.adapter_digest)

    # Text.

    async def tokenize(self, submit: pb.Submit) -> pb.TokenizeReply:
        threads = self._template_threads if has_adapter_template(submit) else self._text_threads
        try:
            reply = await threads.submit(submit.tenant, tokenize, submit, self._tokenizer, self._chat_format)
            reply.max_context = self.description.max_context
            return reply
        except RequestError as error:
            return pb.TokenizeReply(error=error_message(error))

    async def detokenize(self, token_ids: pb.TokenIds) -> pb.DetokenizeReply:
        try:
            return await self._text_threads.submit("", detokenize, token_ids, self._tokenizer)
        except RequestError as error:
            return pb.DetokenizeReply(error=error_message(error))

    # Output of the engine.

    def _on_output(self, output: StepOutput) -> None:
        """Send a step's output, grouped into one message per session."""
        tokens = 0
        output = self._probes.without_probes(output)
        self._prefix_pins.take(output)
        for delta in output.deltas:
            tokens += len(delta.token_ids)
            live = self._live.get(delta.request_id)
            if live is None:
                continue
            if live.prompt_tokens:
                self._note_prefill(live)
            if live.session is None:
                live.finish_reasons.add(delta.finish_reason)
            elif not (
                delta.is_plain
                and live.has_plain_output
                and live.session.add_plain(output.step, live.handle, delta.text, delta.token_ids[0])
            ):
                message = delta_message(delta, live.submit.echo_token_ids, self._tokenizer)
                if live.prompt is not None:
                    message.prompt.CopyFrom(live.prompt)
                    live.prompt = None
                live.read(message)
                live.finish_reasons.add(message.finish_reason)
                live.session.add_delta(output.step, message, live.handle)
        if tokens:
            self._generated.append((time.monotonic(), tokens))
        if output.finished:
            self._record_finished(output.step, output.finished)

    def _note_prefill(self, live: Live) -> None:
        """Record that a request's prompt is computed."""
        if self._snapshot is None or self._snapshot.prefix_tokens is not None:
            self.prefixes.used(prefix_marks(live.submit), live.prompt_tokens)
        live.prompt_tokens = 0

    def _record_finished(self, step: int, finished: Iterable[RequestFinished]) -> None:
        """Write usage to the journal, then send ``Finished``. Refused requests have no usage."""
        ended = [(self._live[item.request_id], item) for item in finished if item.request_id in self._live]
        answers = []
        for live, item in ended:
            self._forget(live)
            item.usage.submitted_unix = item.usage.submitted_unix or live.submitted_unix
            item.usage.finished_unix = item.usage.finished_unix or time.time()
            record = usage_message(item.usage, item.error)
            record.finish_reason = ",".join(sorted(live.finish_reasons - {""}))
            answers.append((live, item, record))
        used = [answer for answer in answers if answer[1].usage.outcome != "refused"]
        for live, item, record in answers:
            if item.usage.outcome == "refused":
                self._answer(live, step, item, record)
        if used:
            self._being_recorded += len(used)
            records = [record for _, _, record in used]
            self.journal.append(records, lambda: self._on_loop(self._recorded, step, used))

    def _recorded(self, step: int, used: list[tuple[Live, RequestFinished, pb.UsageRecord]]) -> None:
        self._being_recorded -= len(used)
        for live, item, record in used:
            self._answer(live, step, item, record)

    def _answer(self, live: Live, step: int, item: RequestFinished, record: pb.UsageRecord) -> None:
        tokens_before = sum(len(part.token_ids) for part in live.submit.so_far)
        self.metrics.count(item, live.submit.slo.inter_token_ms, tokens_before)
        error = error_message(item.error) if item.error else None
        if item.error:
            log.info("%s: %s", item.usage.outcome, item.error.message, extra=_context(live, item.error))
        if live.session is not None:
            message = pb.Finished(request_id=item.request_id, usage=record, error=error)
            live.session.add_finished(step, message)

    def _on_loop(self, function: object, *arguments: object) -> None:
        """Call a function on the event loop from any thread, unless the loop has ended."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)  # type: ignore[arg-type]

    # Adapters.

    async def stage(self, request: pb.StageAdapterRequest) -> AsyncIterator[pb.StageEvent]:
        if error := self._reject_base(request.base_digest):
            self.metrics.stages.add(1, result=Phase.FAILED.value)
            yield pb.StageEvent(phase=pb.StageEvent.FAILED, error=error_message(error))
            return
        artifact = Artifact(
            request.digest,
            request.source_uri,
            dict(request.file_digests),
            dict(request.source_headers),
            dict(request.file_uris),
            tuple(
                Peer(peer.address, peer.server_name, peer.authority, peer.certificate, peer.key)
                for peer in request.peers
            ),
        )
        async for event in self._tiers.stage(artifact):
            if event.phase in (Phase.READY, Phase.FAILED):
                self.metrics.stages.add(1, result=event.phase.value)
            yield stage_message(event)

    async def probe(
        self, digest: str, patience_s: float, template: pb.ChatTemplate | None = None
    ) -> pb.ProbeAdapterReply:
        """Probe an adapter in the background, with ``template`` for its chats. Fails if it takes longer than
        ``patience_s``.
        """
        if self.draining or not self._tiers.knows(digest):
            return pb.ProbeAdapterReply(error=error_message(self._not_probed(digest)))
        try:
            return pb.ProbeAdapterReply(effect=await self._probes.probe(digest, patience_s, template))
        except RequestError as error:
            return pb.ProbeAdapterReply(error=error_message(error))

    def _not_probed(self, digest: str) -> RequestError:
        if self.draining:
            return RequestError("draining", "This host is draining and probes no adapters.", "Use another host.",
                                retry_after_ms=1000)  # fmt: skip
        return RequestError("adapter_not_found", f"The adapter {digest[:80]} is not on this host.", "Stage it first.",
                            retry_after_ms=1000)  # fmt: skip

    def adapter_folder(self, digest: str) -> AbstractContextManager[Path]:
        """Return a context with the folder of an adapter's files, which stay until it ends. Raises ``StageError``."""
        return self._tiers.disk.reading(digest)

    async def drop(self, digest: str) -> bool:
        """Remove an adapter from every tier once no request uses it. Returns whether there was one."""
        below = self._tiers.drop(digest)
        on_device = await asyncio.wrap_future(self._engine.call(lambda engine: engine.drop_adapter(digest)))
        return below or on_device

    async def pin(self, digests: Iterable[str]) -> list[str]:
        """Pin these adapters, and no others, on the device and in host memory. Returns those on the device.

        Waits up to a second for adapters that are being loaded.
        """
        wanted = list(dict.fromkeys(digests))
        self._tiers.arena.pin(wanted)
        until = time.monotonic() + _PIN_PATIENCE_S
        kept = await asyncio.wrap_future(self._engine.call(lambda engine: engine.pin_adapters(wanted)))
        while len(kept) < len(wanted) and time.monotonic() < until:
            await asyncio.sleep(_PIN_POLL_S)
            kept = await asyncio.wrap_future(self._engine.call(lambda engine: engine.pinned_adapters()))
        return kept

    async def pin_prefixes(self, prefixes: Iterable[pb.PinnedPrefix]) -> pb.PinPrefixesReply:
        """Pin these prefixes, and no others, in the KV cache and return the state of each.

        Waits up to a second for those that are missing. Dispatchers get the pinned ones as recently used prefixes.
        """
        pinned = [*prefixes]
        reply = await self._prefix_pins.set(pinned)
        for prefix, state in zip(pinned, reply.prefixes, strict=True):
            if state.state == pb.PrefixState.KEPT:
                self.prefixes.used(prefix_marks(prefix.prompt), state.tokens)
        return reply

    # State.

    def _on_failure(self, reason: str) -> None:
        log.critical(
            "The engine failed: %s. It ends once its requests have ended, so that its supervisor restarts it.", reason
        )
        self.failure = reason
        self.failed.set()

    def drain(self, *, undo: bool = False) -> None:
        self.draining = not undo or self.restarts.is_set()

    def restart(self, boot_id: str, wait_s: float) -> bool:
        """Restart this process once its requests have ended, after ``wait_s`` at the latest; a later call replaces the
        time.

        Returns False if ``boot_id`` is of an earlier process, which has been restarted already.
        """
        if boot_id != self.boot_id:
            return False
        self._restart_by = time.monotonic() + wait_s
        self.restarts.set()
        self.drain()
        return True

    @property
    def may_restart(self) -> bool:
        return self.idle or time.monotonic() >= self._restart_by

    async def load(self) -> pb.HostStatus | None:
        """Return the load part of the heartbeat, shared by all callers within 100 ms; None if a step takes long."""
        now = time.monotonic()
        if self._load is None or now - self._load_at > _LOAD_KEPT_S:
            self._load, self._load_at = asyncio.ensure_future(self._read_load()), now
        load = self._load  # another caller may replace it while this one waits
        done, _ = await asyncio.wait([load], timeout=_STATUS_PATIENCE_S)
        return await load if done else None

    async def _read_load(self) -> pb.HostStatus:
        read = self._engine.call(lambda e: (e.steps, e.num_running, e.num_waiting, e.queue_report()))
        steps, running, waiting, queue = await asyncio.wrap_future(read)
        return pb.HostStatus(
            boot_id=self.boot_id,
            unix_time=time.time(),
            steps=steps,
            running=running,
            waiting=waiting,
            draining=self.draining,
            tokens_per_second=self._tokens_per_second(),
            tenants=[tenant_message(share) for share in queue.tenants if share.tenant != PROBING],
            first_token=newcomer_message(queue.newcomer),
            load_only=True,
        )

    async def status(self) -> pb.HostStatus:
        """Return the heartbeat. A long step delays it by at most a second; then the last snapshot is sent."""
        status = self._status_without_adapters(snapshot := await self._refresh_snapshot())
        status.adapters.extend(self._adapter_tiers(snapshot.on_device))
        return status

    async def heartbeat(self) -> Heartbeat:
        """Return the heartbeat for streams that send changes, shared by all callers within 100 ms: listing thousands of
        adapters takes milliseconds.
        """
        now = time.monotonic()
        if self._heartbeat is None or now - self._heartbeat_at > _LOAD_KEPT_S:
            self._heartbeat, self._heartbeat_at = asyncio.ensure_future(self._read_heartbeat()), now
        # Shielded: cancelling one caller must not cancel it for the others. Another caller may replace the attribute
        # meanwhile, so await the future itself.
        return await asyncio.shield(self._heartbeat)

    async def _read_heartbeat(self) -> Heartbeat:
        snapshot = await self._refresh_snapshot()
        return Heartbeat(self._status_without_adapters(snapshot), self._adapter_tiers(snapshot.on_device))

    def _status_without_adapters(self, snapshot: Snapshot) -> pb.HostStatus:
        pool = snapshot.pool
        return pb.HostStatus(
            boot_id=self.boot_id,
            unix_time=time.time(),
            steps=snapshot.steps,
            running=snapshot.running,
            waiting=snapshot.waiting,
            draining=self.draining,
            restarting=self.restarts.is_set(),
            tokens_per_second=self._tokens_per_second(),
            pool=pb.PoolPages(
                total=pool.total,
                free=pool.free,
                kv=pool.kv,
                cached_prefix=pool.cached_prefix,
                adapter=pool.adapter,
                reserved=pool.reserved,
            ),
            host_arena_bytes_used=self._tiers.arena.used,
            unacknowledged_usage=len(self.journal),
            adapter_readers=self.adapter_readers,
            tenants=[tenant_message(share) for share in snapshot.queue.tenants if share.tenant != PROBING],
            refused_early=snapshot.queue.refused,
            forecast=accuracy_message(snapshot.queue.accuracy),
            merging=pb.Merging(
                adapter_digest=snapshot.merging.merged,
                merges=snapshot.merging.merges,
                merged_steps=snapshot.merging.merged_steps,
            ),
            service_gap=gap_message(snapshot.queue.gap),
            first_token=newcomer_message(snapshot.queue.newcomer),
            load_times=pb.LoadTimes(
                to_device=load_time_message(snapshot.device_load_time),
                from_disk=load_time_message(self._tiers.load_times.now),
                download=load_time_message(self._tiers.download_times.now),
            ),
            prefill_budget=pb.PrefillBudget(
                objective_ms=snapshot.prefill_budget.objective_s * 1000,
                limited_steps=snapshot.prefill_budget.limited_steps,
            ),
        )

    async def page_map(self) -> pb.PageMap:
        """Return the owner of each page, read between two steps."""
        pages = await asyncio.wrap_future(self._engine.call(lambda engine: engine.page_map()))
        return page_map_message(pages, self.boot_id)

    async def waiting(self, tenant: str, limit: int) -> list[pb.WaitingRequest]:
        """Return the requests in the engine's queue, with the reason why each waits."""
        requests = await asyncio.wrap_future(self._engine.call(lambda engine: engine.waiting_requests(tenant, limit)))
        return [waiting_message(request) for request in requests]

    async def _refresh_snapshot(self) -> Snapshot:
        snapshot = asyncio.wrap_future(self._engine.call(_snapshot))
        patience = _STATUS_PATIENCE_S if self._snapshot else None
        done, _ = await asyncio.wait([snapshot], timeout=patience)
        if done:
            self._snapshot = snapshot.result()
            self.prefixes.keep(self._snapshot.prefix_tokens or 0)
        assert self._snapshot is not None
        return self._snapshot

    def _adapter_tiers(self, on_device: Iterable[DeviceAdapter]) -> list[pb.AdapterResidency]:
        """List every adapter once, at the tier nearest to the device."""
        tiers = pb.AdapterResidency
        adapters = {d: tiers(digest=d, tier=tiers.DISK, bytes=size) for d, size in self._tiers.disk.contents().items()}
        for packed in self._tiers.arena.contents():
            if is_combined(packed.digest):  # the control plane knows only its parts
                continue
            adapters[packed.digest] = tiers(
                digest=packed.digest, tier=tiers.HOST, bytes=packed.num_bytes, rank=packed.rank
            )
        for adapter in on_device:
            if is_combined(adapter.digest):
                continue
            adapters[adapter.digest] = tiers(
                digest=adapter.digest,
                tier=tiers.DEVICE,
                running=adapter.running,
                bytes=adapter.num_bytes,
                rank=adapter.rank,
            )
        return list(adapters.values())

    def _tokens_per_second(self) -> float:
        since = time.monotonic() - _RATE_WINDOW_S
        while self._generated and self._generated[0][0] < since:
            self._generated.popleft()
        return sum(tokens for _, tokens in self._generated) / _RATE_WINDOW_S


def _snapshot(engine: EngineLike) -> Snapshot:
    return Snapshot(
        engine.steps,
        engine.num_running,
        engine.num_waiting,
        engine.pool_stats(),
        engine.prefix_tokens(),
        tuple(engine.device_adapters()),
        engine.queue_report(),
        engine.merge_report(),
        engine.prefill_budget_report(),
        engine.device_load_time,
    )


def _context(live: Live, error: RequestError) -> dict[str, str]:
    return {
        "request_id": live.submit.request_id,
        "tenant": live.submit.tenant,
        "adapter_digest": live.submit.adapter_digest,
        "code": error.code,
    }
