"""The engine: requests in, tokens out. ``Engine.step`` is the whole story."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict

from lora_kernels.sampling_parameters import OVERFLOWED

from . import __version__
from .adapters.device_copies import InlineCopies, StreamCopies
from .adapters.device_table import DeviceTable
from .adapters.device_tier import AdapterSlot, DeviceAdapter, DeviceTier
from .adapters.layout import TargetShapes
from .adapters.source import AdapterSource
from .config import EngineConfig
from .device_time import DeviceTime
from .memory import EvictionQueue, PageAllocator, PagePool, PoolStats, PrefixCache, RestoreCosts
from .model.config import ModelConfig
from .model.loading import LoadedModel, load_model
from .model.merging import MergedLayers
from .request import (
    GenerationRequest,
    RequestError,
    RequestFinished,
    RequestUsage,
    StepOutput,
    TokenDelta,
    TokenLogprob,
)
from .runner import InFlight, Runner
from .scheduling.admission_controller import AdmissionController
from .scheduling.admissions import admissions
from .scheduling.evictor import Evictor
from .scheduling.merge_policies import UNMERGED, Applied, Batch, MergeReport, merge_policies
from .scheduling.prefill_budget import PrefillBudgetReport
from .scheduling.queue_policies import PolicyContext, queue_policies
from .scheduling.scheduler import Scheduler, StepPlan, too_large_for_host
from .scheduling.scheduler_stats import QueueReport, SchedulerStats, WaitingRequest
from .scheduling.sequence import RequestState, Sequence, State, Timeline
from .scheduling.step_cost import Work
from .text import IncrementalDetokenizer, Tokenizer

log = logging.getLogger(__name__)

_REPORTED_TENANTS = 100  # in one status; the rest of them by asking for their waiting requests


class Engine:
    """One base model, its page pool, and the requests of all its adapters.

    Not thread-safe: one thread calls everything but the constructor.
    """

    def __init__(
        self,
        config: EngineConfig,
        source: AdapterSource,
        loaded: LoadedModel | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.source = source
        self.loaded = loaded or load_model(config)
        self.pool: PagePool = self.loaded.pool
        self.allocator = PageAllocator(self.pool.num_pages)
        self.costs, queue = RestoreCosts(), EvictionQueue()
        self.prefixes = PrefixCache(
            self.allocator, self.pool.geometry.page_tokens, queue, self.costs, enabled=config.prefix_cache
        )
        self.device_tier = DeviceTier(
            self.pool,
            self.allocator,
            self.loaded.targets.shapes,
            clock,
            DeviceTable(self.loaded.tables) if self.loaded.tables is not None else None,
            queue,
            self.costs,
            StreamCopies(self.pool.data.device) if self.pool.data.is_cuda else InlineCopies(),
        )
        context = PolicyContext(
            config, clock, self.device_tier.on_device, self.pool.num_pages * self.pool.geometry.page_tokens
        )
        self.mode = merge_policies.create(config.mode)
        self.scheduler = Scheduler(
            order=queue_policies.create(config.order, context),
            allocator=self.allocator,
            geometry=self.pool.geometry,
            device_tier=self.device_tier,
            prefixes=self.prefixes,
            evictor=Evictor(self.allocator, queue, self.device_tier, self.prefixes),
            source=source,
            prefetch=config.prefetch,
            step_tokens=config.step_tokens,
            max_running=config.max_running,
            min_prefill_share=config.min_prefill_share,
            clock=clock,
        )
        self.forecast = self.scheduler.forecast
        self.admission = AdmissionController(
            admissions.create(config.admission, context, self.forecast), self.forecast, clock
        )
        self.stats = SchedulerStats(self.scheduler, clock)
        self.runner = build_runner(config, self.loaded)
        self.steps = 0
        self.device_time = DeviceTime()
        self._clock = clock
        self._arrivals = 0
        self._requests: dict[str, RequestState] = {}
        self._work: deque[tuple[Work, Applied | None]] = deque()  # of the steps in flight, and how their adapters run
        self._ended: list[RequestFinished] = []
        self._in_flight: InFlight | None = None
        self._merged: AdapterSlot | None = None  # in the second set of weights, held there as by a request
        self._merges = 0
        self._merged_steps = 0

    # The engine's life, on one screen.

    def step(self) -> StepOutput:
        """Schedule, launch, commit: at most one token for every running sequence.

        On a GPU the tokens committed are those of the step before: while the device works on this
        one, the host takes them in, and schedules the next without waiting for it.
        """
        self.steps += 1
        output = StepOutput(self.steps)
        if not self._may_overlap():
            self._commit(output)
        self._refuse(self.admission.recheck())
        plan = self.scheduler.schedule()
        self._refuse(plan.failed)
        launched = self._launch(plan)
        self._commit(output)
        self._in_flight = launched
        if not self.runner.overlaps:
            self._commit(output)
        output.finished, self._ended = self._ended, []
        return output

    def add_request(self, request: GenerationRequest) -> None:
        """Queue a request. Raises ``RequestError``; nothing is kept of a refused one."""
        max_tokens = self._check(request)
        state = RequestState(request, Timeline(self._clock()), self._usage(request))
        state.sequences = [self._sequence(state, choice, max_tokens) for choice in range(request.sampling.n)]
        self.admission.admit(state.sequences[0])
        for sequence in state.sequences:
            self.scheduler.add(sequence)
        state.unfinished = len(state.sequences)
        self._requests[request.request_id] = state

    def abort(self, request_id: str) -> None:
        """End a request early; its ``RequestFinished`` comes with the next step. Unknown ids are ignored."""
        if state := self._requests.get(request_id):
            self._end(state, "aborted")

    def has_work(self) -> bool:
        return bool(self._requests or self._ended or self._in_flight)

    def drop_adapter(self, digest: str) -> bool:
        """Give back an idle adapter's pages; True if it was on the device. In use, it stays until its requests end."""
        slot = self.device_tier.get(digest)
        if slot is not None and slot is self._merged and slot.refs == 1:
            self._merge(UNMERGED)
        if slot is not None and not slot.refs:
            self.device_tier.drop(slot)
        return slot is not None

    # What others may know.

    @property
    def tokenizer(self) -> Tokenizer:
        return self.loaded.tokenizer

    @property
    def model_config(self) -> ModelConfig:
        return self.loaded.model.config

    @property
    def targets(self) -> TargetShapes:
        return self.loaded.targets

    @property
    def max_context(self) -> int:
        return self.loaded.max_context

    @property
    def num_running(self) -> int:
        return len(self.scheduler.running)

    @property
    def num_waiting(self) -> int:
        return len(self.scheduler.waiting)

    def pool_stats(self) -> PoolStats:
        return self.allocator.stats()

    def queue_report(self) -> QueueReport:
        """Tenants' shares and how the admission policy does."""
        return self.stats.report(self.admission.refused, _REPORTED_TENANTS)

    def merge_report(self) -> MergeReport:
        return MergeReport(self._merged.digest if self._merged else UNMERGED, self._merges, self._merged_steps)

    def prefill_budget_report(self) -> PrefillBudgetReport:
        """What is done for objectives of the time between tokens."""
        return self.scheduler.prefill_budget.report

    def waiting_requests(self, tenant: str, limit: int) -> list[WaitingRequest]:
        """Who waits and why; of one tenant, or of all if ``tenant`` is ``""``."""
        return self.stats.waiting(tenant, limit)

    def device_adapters(self) -> list[DeviceAdapter]:
        return self.device_tier.report()

    def describe(self) -> dict[str, str | int]:
        """Settings and sizes, for the host's description and the start-up log."""
        geometry = self.pool.geometry
        return {
            "engine_version": __version__,
            "model": self.loaded.name,
            "base_digest": self.loaded.digest,
            "family": self.model_config.family,
            "device": self.loaded.device_name,
            "dtype": str(self.pool.data.dtype).removeprefix("torch."),
            "max_context": self.max_context,
            "max_running": self.config.max_running,
            "max_lora_rank": self.config.max_lora_rank,
            "page_tokens": geometry.page_tokens,
            "page_bytes": geometry.page_bytes(self.pool.data.dtype),
            "pages_total": self.pool.num_pages,
            "order": self.config.order,
            "admission": self.config.admission,
            "mode": self.mode.name,
        }

    def check(self) -> None:
        """Verify the pool against what sequences and adapters hold; raises ``AssertionError``."""
        self.allocator.check()
        held = {page for sequence in self.scheduler.running for page in sequence.pages}
        adapter = sum(len(slot.pages) for slot in self.device_tier.slots())
        owned = (len(held), len(self.prefixes.pages - held), adapter)
        stats = self.allocator.stats()
        if (stats.kv, stats.cached_prefix, stats.adapter) != owned:
            raise AssertionError(f"the pool counts {asdict(stats)}, but sequences, prefixes and adapters hold {owned}")

    # The parts of a step.

    def _may_overlap(self) -> bool:
        """Whether the next step can be planned before the last one's tokens are known."""
        return not any(sequence.request.sampling.penalises for sequence in self.scheduler.running)

    def _launch(self, plan: StepPlan) -> InFlight | None:
        if not plan.chunks:
            return None
        launched_at = self._clock()
        try:
            applied = self._apply_mode(plan)
            launched = self.runner.launch(plan.chunks.values(), self._merged)
        except Exception as error:
            log.exception("a step of %d sequences could not be launched", len(plan.chunks))
            self._fail(plan.chunks, error)
            return None
        self.device_time.launched(plan.chunks.values(), launched_at)
        self.forecast.launched(plan.work)
        self._work.append((plan.work, applied))
        for chunk in plan.chunks.values():
            completes = chunk.samples and chunk.tokens > 1
            chunk.sequence.advance(chunk.tokens)
            if completes:
                self.scheduler.remember_prefix(chunk.sequence)  # of a prompt: others may share it at once
        return launched

    def _apply_mode(self, plan: StepPlan) -> Applied | None:
        """Have that adapter merged which the mode wants for this step. None if the engine never merges."""
        if not self.config.merges:
            return None
        batch = Batch.of(plan.chunks.values())
        before = self._merged.digest if self._merged else UNMERGED
        self._merge(self.mode.choose(batch, before))
        now, rank = (self._merged.digest, self._merged.rank) if self._merged else (UNMERGED, 0)
        self._merged_steps += bool(now)
        return Applied(now, batch.lora(now, rank), switched=now != before)

    def _merge(self, digest: str) -> None:
        if digest == (self._merged.digest if self._merged else UNMERGED):
            return
        if self._merged is not None:
            self.device_tier.release_merged(self._merged)
            self._merged = None
        slot, layers = self.device_tier.get(digest), self.loaded.model.merged
        if digest and slot is not None and layers is not None and self._may_merge(slot, layers):
            self.device_tier.acquire_merged(slot)
            layers.merge(slot)
            self._merged = slot
            self._merges += 1

    def _may_merge(self, slot: AdapterSlot, layers: MergedLayers) -> bool:
        """Asked once for each stay of an adapter on the device; policies see the answer in their batches."""
        if slot.mergeable is None:
            slot.mergeable = layers.harmless(slot)
            if not slot.mergeable:
                log.info("adapter %s is too large to be merged without others noticing", slot.digest)
        return slot.mergeable

    def _commit(self, output: StepOutput) -> None:
        """Take in the tokens of the step in flight. A sequence that ended meanwhile wants its token no more."""
        launched, self._in_flight = self._in_flight, None
        if launched is None:
            return
        try:
            sampled = launched.collect()
        except Exception as error:
            log.exception("a step failed on the device")
            self.device_time.ended(self._clock())
            self._work.popleft()
            self._fail(list(self.scheduler.running), error)
            self.prefixes.forget()
            return
        now = self._clock()
        (work, applied), seconds = self._work.popleft(), self.device_time.ended(now)
        self.forecast.measured(work, seconds)
        if applied is not None:
            self.mode.ran(applied, work, seconds)
        for sequence, token, logprob in sampled:
            if token == OVERFLOWED:
                self._overflowed(sequence)
            if sequence.state is State.FINISHED:
                continue
            timeline = sequence.parent.timeline
            if timeline.first_token is None:
                timeline.first_token = now
                self.forecast.first_token(sequence.parent, now - timeline.submitted)
            output.deltas.append(self._take_token(sequence, token, logprob))

    def _take_token(self, sequence: Sequence, token: int, logprob: TokenLogprob | None) -> TokenDelta:
        sequence.resolve(token)
        sequence.parent.usage.completion_tokens += 1
        params = sequence.request.sampling
        ended_by_token = token in params.stop_token_ids or (
            not params.ignore_eos and token in self.tokenizer.eos_token_ids
        )
        text = "" if ended_by_token else sequence.detokenizer.append(token)
        reason = ""
        if ended_by_token or sequence.detokenizer.stopped is not None:
            reason = "stop"
        elif sequence.num_output - sequence.pending >= sequence.max_tokens:
            reason = "length"
        if reason:
            text += sequence.detokenizer.flush()
            self._finish_sequence(sequence)
        return TokenDelta(
            sequence.request.request_id, sequence.choice, text, [token], [logprob] if logprob else [], reason
        )

    def _finish_sequence(self, sequence: Sequence) -> None:
        self.scheduler.finish(sequence)
        self.forecast.finished(sequence)
        state = sequence.parent
        state.unfinished -= 1
        if not state.unfinished:
            self._end(state, "finished")

    def _overflowed(self, sequence: Sequence) -> None:
        """Its logits are not finite. Its request ends, and nothing that it computed is kept for others."""
        self.prefixes.forget_path(sequence.prefix_key, sequence.token_ids)
        if sequence.state is State.FINISHED:
            return
        digest = sequence.request.adapter_digest
        log.warning("the logits of %s are not finite: %s", sequence.request.request_id, digest or "the base model")
        self._give_up(sequence.parent, overflow(digest, str(self.pool.data.dtype).removeprefix("torch.")))

    def _refuse(self, failed: Iterable[tuple[Sequence, RequestError]]) -> None:
        for sequence, error in failed:
            self._end(sequence.parent, "refused", error)

    def _fail(self, sequences: Iterable[Sequence], cause: Exception) -> None:
        error = RequestError(
            "engine_error",
            f"The engine failed while it worked on this request ({type(cause).__name__}).",
            "Try again; if it fails again, send the request id to the operator.",
            retry_after_ms=1000,
        )
        for state in {id(s.parent): s.parent for s in sequences}.values():
            self._give_up(state, error)

    def _give_up(self, state: RequestState, error: RequestError) -> None:
        """What was written for it cannot be trusted, nor kept for others."""
        for sequence in state.sequences:
            sequence.num_computed = 0
        self._end(state, "failed", error)

    def _end(self, state: RequestState, outcome: str, error: RequestError | None = None) -> None:
        """Close a request: give everything back, fill in its usage, report it once."""
        if self._requests.pop(state.request.request_id, None) is None:
            return
        for sequence in state.sequences:
            if sequence.state is not State.FINISHED:
                self.scheduler.finish(sequence)
        usage, timeline, now = state.usage, state.timeline, self._clock()
        usage.outcome = outcome
        usage.finished_unix = time.time()
        usage.device_us = round(state.device_s * 1e6)
        waited_until = timeline.first_scheduled if timeline.first_scheduled is not None else now
        usage.adapter_load_ms = _ms(timeline.adapter_wait)
        usage.queue_ms = max(0, _ms(waited_until - timeline.submitted) - usage.adapter_load_ms)
        if timeline.first_token is not None:
            usage.first_token_ms = _ms(timeline.first_token - timeline.submitted)
            usage.prefill_ms = _ms(timeline.first_token - waited_until)
            usage.decode_ms = _ms(now - timeline.first_token)
        self._ended.append(RequestFinished(state.request.request_id, usage, error))

    # The parts of adding a request.

    def _check(self, request: GenerationRequest) -> int:
        """Refuse what cannot be served; the most tokens each choice may generate."""
        params, prompt = request.sampling, len(request.prompt_token_ids)
        if request.request_id in self._requests:
            raise RequestError(
                "duplicate_request",
                f"Request id {request.request_id} is already running.",
                "Use a new request id for every request.",
                param="request_id",
            )
        params.validate(self.model_config.vocab_size)
        self._check_prompt(request.prompt_token_ids)
        room = self.max_context - prompt
        if room < 1 or params.max_tokens > room:
            raise RequestError(
                "context_length_exceeded",
                f"This model's context is {self.max_context} tokens, but the request needs "
                f"{prompt + max(params.max_tokens, 1)} ({prompt} in the prompt, {params.max_tokens or 1} to generate).",
                f"Shorten the prompt or lower max_tokens; together they may be {self.max_context}.",
                param="messages" if room < 1 else "max_tokens",
            )
        if len(self.scheduler.waiting) + params.n > self.config.max_waiting:
            raise RequestError(
                "overloaded",
                f"{len(self.scheduler.waiting)} requests are already waiting on this host.",
                "Try again in a moment.",
                retry_after_ms=1000,
            )
        packed = self.source.get(request.adapter_digest) if request.adapter_digest else None
        max_tokens = params.max_tokens or room
        if not self.scheduler.can_ever_fit(prompt + max_tokens, packed.num_pages if packed else 0):
            raise too_large_for_host()
        return max_tokens

    def _check_prompt(self, token_ids: list[int]) -> None:
        vocab = self.model_config.vocab_size
        if not token_ids:
            raise RequestError(
                "empty_prompt", "The prompt has no tokens.", "Send at least one character of prompt.", param="prompt"
            )
        if min(token_ids) < 0 or max(token_ids) >= vocab:
            raise RequestError(
                "invalid_value",
                f"The prompt holds a token id outside 0 to {vocab - 1}.",
                "Tokenise the prompt with this model's tokenizer.",
                param="prompt",
            )

    def _usage(self, request: GenerationRequest) -> RequestUsage:
        return RequestUsage(
            request.request_id,
            request.tenant,
            request.adapter_digest,
            prompt_tokens=len(request.prompt_token_ids),
            submitted_unix=time.time(),
        )

    def _sequence(self, state: RequestState, choice: int, max_tokens: int) -> Sequence:
        self._arrivals += 1
        tokens = list(state.request.prompt_token_ids)
        return Sequence(state, choice, self._arrivals, tokens, max_tokens, self._detokenizer(state.request))

    def _detokenizer(self, request: GenerationRequest) -> IncrementalDetokenizer:
        sampling = request.sampling
        return IncrementalDetokenizer(
            self.tokenizer, sampling.stop, sampling.include_stop, continues_text=request.continues_text
        )


def overflow(digest: str, dtype: str) -> RequestError:
    """For a request whose next token could not be chosen: some logit was infinite, or no number."""
    if digest:
        return RequestError(
            "adapter_overflow",
            f"With this adapter the model's numbers grew beyond what {dtype} holds, so no token could be chosen.",
            "Train or export the adapter with smaller weights or a smaller lora_alpha, and upload it as a new version.",
            param="model",
        )
    return RequestError(
        "model_overflow",
        f"The base model's numbers grew beyond what {dtype} holds on this prompt, so no token could be chosen.",
        "Send the request id to the operator: the model may need another --dtype (bfloat16 or float32).",
        param="model",
    )


def build_runner(config: EngineConfig, loaded: LoadedModel) -> Runner:
    """Graphs where the backend can be captured, plain execution elsewhere."""
    if loaded.tables is None or not loaded.pool.data.is_cuda:
        return Runner(loaded.model, loaded.pool, config.max_running)
    # These need triton, which a CPU engine does not.
    from .graph_runner import GraphRunner
    from .model.warm_up import compile_prefill_steps

    seconds = {"compile prefill steps": compile_prefill_steps(loaded.model, loaded.pool)}
    if not config.cuda_graphs:
        runner = Runner(loaded.model, loaded.pool, config.max_running)
        runner.start_seconds = seconds
        return runner
    graphs = GraphRunner(loaded.model, loaded.pool, config.max_running, loaded.max_context)
    graphs.start_seconds = {**seconds, "capture decode graphs": graphs.capture()}
    return graphs


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
