"""The decisions of the engine, without a device: which requests run, on which pages, with which adapters.

``Engine`` adds the model, its runner and real clocks; ``SimulatedEngine`` adds modelled step times. Both make the same
decisions, because both make them here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict

from lora_engine.adapters.device_copies import DeviceCopies
from lora_engine.adapters.device_tier import AdapterTable, DeviceMirror, DeviceTier
from lora_engine.adapters.layout import EXPERT_RANKS
from lora_engine.adapters.source import AdapterSource
from lora_engine.adapters.targets import REPLICATED
from lora_engine.config import EngineConfig
from lora_engine.errors import RequestError
from lora_engine.memory import EvictionQueue, PageAllocator, PagePool, PrefixCache, RestoreCosts
from lora_engine.peft_format import digests_of
from lora_engine.request import PinnedPrefix, PinState
from lora_engine.text import IncrementalDetokenizer

from .admission_controller import AdmissionController
from .admissions import admissions
from .draft_slots import DraftSlots
from .evictor import Evictor
from .merge_policies import Applied, merge_policies
from .merged_adapter import MergeableWeights, MergedAdapter
from .queue_policies import ClassedQueue, PolicyContext, queue_policies
from .scheduler import Scheduler, StepPlan
from .scheduler_stats import SchedulerStats
from .sequence import RequestState, Sequence, State
from .speculation import Speculation
from .step_cost import Work


class SchedulingCore:
    """The queue, page pool, device tier, policies and open requests of an engine.

    A step consists of ``schedule`` and ``choose_merged``; ``launched``, once the device has it; ``measured``, once it
    is done; then ``token_arrived`` for each token that it sampled. The next step may be scheduled once this one is
    launched. Times are seconds of ``clock``.
    """

    def __init__(
        self,
        config: EngineConfig,
        source: AdapterSource,
        pool: PagePool,
        target_shapes: dict[str, tuple[int, int]],
        *,
        clock: Callable[[], float],
        copies: DeviceCopies,
        on_end: Callable[[RequestState, RequestError | None], None],
        table: AdapterTable | None = None,
        merged_weights: MergeableWeights | None = None,
        mirror: DeviceMirror | None = None,
        speculation: Speculation | None = None,
        prompt_boundary: int = 1,
    ) -> None:
        """Create the parts of the engine. ``on_end`` is called once for each request that ends, with its usage
        complete. Without ``speculation`` nothing is drafted. For ``prompt_boundary`` see ``Sequence.whole_chunk``.
        """
        self._pool, self._mirror = pool, mirror
        self.requests: dict[str, RequestState] = {}
        self.arrivals = 0  # number of sequences so far
        self.allocator = PageAllocator(pool.num_pages)
        costs, evictables = RestoreCosts(), EvictionQueue()
        self.prefixes = PrefixCache(
            self.allocator,
            pool.geometry.page_tokens,
            evictables,
            costs,
            enabled=config.prefix_cache,
            has_states=pool.geometry.state_pages > 0,
        )
        self.device_tier = DeviceTier(
            pool,
            self.allocator,
            target_shapes,
            clock,
            table,
            evictables,
            costs,
            copies,
            mirror,
            config.resident_experts,
            source.has,
        )
        context = PolicyContext(
            config,
            clock,
            self.device_tier.on_device,
            pool.num_pages * pool.geometry.page_tokens,
            pool.num_pages,
            # Only models with experts have routers, which every rank has in full.
            config.max_lora_rank * (1 if REPLICATED.isdisjoint(target_shapes) else 1 + EXPERT_RANKS),
        )
        self.queue = ClassedQueue(lambda: queue_policies.create(config.order, context))
        self.scheduler = Scheduler(
            queue=self.queue,
            allocator=self.allocator,
            geometry=pool.geometry,
            device_tier=self.device_tier,
            prefixes=self.prefixes,
            evictor=Evictor(self.allocator, evictables, self.device_tier, self.prefixes),
            source=source,
            prefetch=config.prefetch,
            step_tokens=config.max_step_tokens,
            max_running=config.max_running,
            min_prefill_share=config.min_prefill_share,
            clock=clock,
            copy_pages=self._copy_pages,
            speculation=speculation,
            draft_slots=None
            if config.speculation == "off"
            else DraftSlots(config.drafting_sequences, config.speculation_tokens),
            prompt_boundary=prompt_boundary,
        )
        self.forecast = self.scheduler.forecast
        self.admission = AdmissionController(
            admissions.create(config.admission, context, self.forecast), self.forecast, clock
        )
        self.merge_policy = merge_policies.create(config.mode)
        self.merged = MergedAdapter(self.merge_policy, self.device_tier, merged_weights)
        self.stats = SchedulerStats(self.scheduler, clock)
        self._max_waiting = config.max_waiting
        self._prompts_apart = config.deterministic
        self._clock = clock
        self._on_end = on_end
        self._in_flight: deque[tuple[Work, Applied | None]] = deque()  # launched steps that have no result yet

    # Requests.

    def add(
        self, request_state: RequestState, max_tokens: int, detokenizer: Callable[[], IncrementalDetokenizer]
    ) -> None:
        """Queue a request with a sequence for each choice, of at most ``max_tokens`` output tokens.

        Raises ``RequestError`` if the admission policy refuses it, and then keeps nothing of it.
        """
        for choice, prompt in enumerate(request_state.request.prompts):
            self.arrivals += 1
            request_state.sequences.append(
                Sequence(
                    request_state, choice, self.arrivals, [*prompt], max_tokens, detokenizer(), self._prompts_apart
                )
            )
        for part in request_state.request.so_far:
            request_state.sequences[part.choice].resume(part.token_ids, finished=part.finished)
            request_state.usage.completion_tokens += len(part.token_ids)
        unfinished = [sequence for sequence in request_state.sequences if sequence.state is not State.FINISHED]
        if unfinished:
            self.admission.admit(unfinished[0])
        for sequence in unfinished:
            self.scheduler.add(sequence)
        request_state.unfinished = len(unfinished)
        self.requests[request_state.request.request_id] = request_state
        if not unfinished:  # only its usage was left to report
            self.end(request_state, "finished")

    def may_queue(self, tenant: str, sequences: int) -> bool:
        """Return whether ``sequences`` more may wait. If the queue is full, a tenant still gets an equal
        share of it.
        """
        most, waiting = self._max_waiting, self.forecast.waiting_of_tenant
        if len(self.queue) + sequences <= most:
            return True
        return waiting[tenant] + sequences <= most // (len(waiting) + (tenant not in waiting))

    def finish(self, sequence: Sequence) -> None:
        """Finish a sequence that has all its tokens; the last one of a request ends the request."""
        self.scheduler.finish(sequence)
        if not sequence.request.prompt_only:
            self.forecast.finished(sequence)
        request_state = sequence.request_state
        request_state.unfinished -= 1
        if not request_state.unfinished:
            self.end(request_state, "finished")

    def fail(self, request_state: RequestState, error: RequestError) -> None:
        """End a request whose keys and values cannot be trusted; none of them stay in the prefix cache."""
        for sequence in request_state.sequences:
            sequence.num_computed = 0
        self.end(request_state, "failed", error)

    def end(self, request_state: RequestState, outcome: str, error: RequestError | None = None) -> None:
        """Release everything that a request uses and complete its usage. Does nothing if it has ended."""
        if request_state.ended:
            return
        request_state.ended = True
        self.requests.pop(request_state.request.request_id, None)
        for sequence in request_state.sequences:
            if sequence.state is not State.FINISHED:
                self.scheduler.finish(sequence)
        request_state.usage.outcome = outcome
        request_state.complete_usage(self._clock())
        self._on_end(request_state, error)

    # A step.

    def schedule(self) -> StepPlan:
        """Return the next step's plan. Ends requests that cannot be served in time, or at all."""
        self._refuse(self.admission.recheck())
        plan = self.scheduler.schedule()
        if not plan.chunks and len(self.queue) and self.merged.idle:
            # The merged adapter, which no request uses, may have the pages that the waiting ones need.
            self.merged.release()
            failed, plan = plan.failed, self.scheduler.schedule()
            plan.failed.extend(failed)
        self._refuse(plan.failed)
        return plan

    def choose_merged(self, plan: StepPlan) -> Applied | None:
        """Merge the adapter that the merge policy chooses for this step; None if the engine never merges."""
        return self.merged.choose(plan.chunks.values())

    def launched(self, plan: StepPlan, applied: Applied | None) -> None:
        """Record that the device runs the step; the tokens that it samples are pending from now on."""
        self.forecast.launched(plan.work)
        self._in_flight.append((plan.work, applied))
        for chunk in plan.chunks.values():
            completes_prefill = chunk.samples and chunk.known > 1
            chunk.sequence.advance(chunk.known)
            self.scheduler.keep_state(chunk.sequence)
            if completes_prefill:
                self.scheduler.cache_prefix(chunk.sequence)  # other sequences may share it immediately
        for sequence in plan.reads:
            sequence.was_read()

    def defer(self, sequence: Sequence) -> None:
        """Keep a launched sequence out of steps: the mask for its next token was not ready in time."""
        sequence.retract()
        self.scheduler.defer(sequence)

    def measured(self, seconds: float) -> None:
        """Record that the oldest launched step took ``seconds`` on the device."""
        work, applied = self._in_flight.popleft()
        self.forecast.measured(work, seconds)
        self.merged.ran(applied, work, seconds)

    def step_failed(self) -> None:
        """Discard the oldest launched step, which failed. Its writes cannot be trusted, so idle prefixes
        are dropped.
        """
        self._in_flight.popleft()
        self.prefixes.clear_idle()

    def token_arrived(self, sequence: Sequence, token: int, now: float) -> None:
        """Record the value of a sequence's oldest pending token; without one, a token after an accepted draft."""
        if not sequence.pending:
            self.queue.of(sequence).accepted(sequence, 1)
        sequence.resolve(token)
        request_state = sequence.request_state
        request_state.usage.completion_tokens += not request_state.request.prompt_only
        if request_state.first_token is None:
            request_state.first_token = now
            self.forecast.first_token(request_state, now - request_state.submitted)

    @property
    def awaits_drafts(self) -> bool:
        """True if the next step may have drafts, for which the tokens of the last one must be known."""
        speculation = self.scheduler.speculation
        return speculation is not None and speculation.waits(len(self.scheduler.running))

    def may_draft(self, sequence: Sequence) -> bool:
        """Return whether tokens may be drafted for a sequence after the next step."""
        speculation = self.scheduler.speculation
        return (
            speculation is not None
            and speculation.may_draft(len(self.scheduler.running))
            and speculation.wants(sequence)
        )

    def count_drafts(self, sampled: Mapping[Sequence, int], drafted: Mapping[Sequence, int]) -> None:
        """Count a step's drafts in the usage of their requests: the numbers of tokens that sequences kept, and of
        drafts that they had.
        """
        for sequence, drafts in drafted.items():
            sequence.request_state.usage.drafted_tokens += drafts
            sequence.request_state.usage.accepted_tokens += max(0, sampled.get(sequence, 0) - 1)

    def guess(self, sampled: Mapping[Sequence, int], drafted: Mapping[Sequence, int]) -> None:
        """Compare the tokens of a step with guesses, and guess the next ones; arguments as of ``count_drafts``."""
        speculation = self.scheduler.speculation
        if speculation is not None and speculation.may_draft(len(self.scheduler.running)):
            running = {sequence: tokens for sequence, tokens in sampled.items() if sequence.state is State.RUNNING}
            speculation.committed(running, drafted, len(self.scheduler.running))

    # Adapters and checks.

    def drop_adapter(self, digest: str) -> bool:
        """Release the pages of an idle adapter and of combinations with it; returns True if any was on the device.

        An adapter in use stays until its requests end.
        """
        self.scheduler.pinned.forget(digest)
        self.scheduler.pinned_prefixes.forget(digest)
        slots = [slot for slot in self.device_tier.slots() if digest in (slot.digest, *digests_of(slot.digest))]
        for slot in slots:
            if slot is self.merged.slot and self.merged.idle:
                self.merged.release()
            if not slot.refs:
                self.device_tier.drop(slot)
        return bool(slots)

    def pin_adapters(self, digests: Iterable[str]) -> list[str]:
        """Pin these adapters, and no others. Returns the pinned ones that are on the device."""
        self.scheduler.pinned.set([*digests])
        self.scheduler.bring_pinned()
        return self.scheduler.pinned.kept()

    def pin_prefixes(self, prefixes: Iterable[PinnedPrefix]) -> dict[str, PinState]:
        """Pin these prefixes, and no others. Returns the state of each by name."""
        self.scheduler.pinned_prefixes.set([*prefixes])
        return self.scheduler.pinned_prefixes.states()

    def check(self) -> None:
        """Verify the pool against the pages of sequences and adapters. Raises ``AssertionError``."""
        self.allocator.check()
        self.prefixes.check()
        in_use = {page for sequence in self.scheduler.running for page in sequence.pages}
        adapter = sum(len(slot.pages) for slot in self.device_tier.slots())
        cached = len(self.prefixes.pages - in_use) + self.prefixes.snapshot_pages
        state = sum(len(sequence.state_pages) for sequence in self.scheduler.running)
        owned = (len(in_use), state, cached, adapter)
        stats = self.allocator.stats()
        if (stats.kv, stats.state, stats.cached_prefix, stats.adapter) != owned:
            raise AssertionError(f"the pool counts {asdict(stats)}, but sequences, prefixes and adapters use {owned}")
        self._check_idle()
        if self.device_tier.experts is not None:
            self.device_tier.experts.check()

    def _check_idle(self) -> None:
        idle = [slot for slot in self.device_tier.slots() if not slot.refs]
        counted = (self.device_tier.idle_pages, self.device_tier.pinned_idle_pages)
        pages = tuple(sum(len(slot.pages) for slot in idle if slot.pinned == pinned) for pinned in (False, True))
        if counted != pages:
            raise AssertionError(f"idle adapters and pinned ones have {pages} pages, and {counted} are counted")
        if any(slot.pinned and slot.ticket for slot in idle):
            raise AssertionError("a pinned adapter is among those to evict")

    def _copy_pages(self, source: list[int], target: list[int]) -> None:
        """Copy pages on every rank, in the order of steps."""
        if self._mirror is not None:
            self._mirror.copy_pages(source, target)
        self._pool.copy_pages(source, target)

    def _refuse(self, refused: Iterable[tuple[Sequence, RequestError]]) -> None:
        for sequence, error in refused:
            self.end(sequence.request_state, "refused", error)
