"""Scheduling is at iteration level over one page pool.

There is no prefill phase and no decode phase: each step has a token budget, running sequences take theirs first (one
token each to decode), and the rest goes to prefill chunks of running and newly started sequences. When pages run out,
idle adapters and cached prefixes are evicted first; then the queue policy chooses a running sequence to pre-empt by
recompute. A tenant that has far less than its share of the batch enters before anything else of a step is planned;
other tenants' sequences are pre-empted for its first ones.

Adapters are copied to the device while the batch runs: a sequence whose adapter is being copied is passed over until
the copy is complete, and the adapters of the next few waiting sequences are prefetched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from lora_engine.adapters.device_tier import AdapterSlot, DeviceTier
from lora_engine.adapters.source import AdapterSource
from lora_engine.errors import RequestError
from lora_engine.memory import PageAllocator, PageKind, PoolGeometry, PrefixCache
from lora_engine.memory.prefix_cache import CachedState

from .decode_set import DecodeSet
from .draft_slots import DraftSlots
from .evictor import Evictor
from .forecast import Forecast, FreeCapacity
from .pinned_adapters import PinnedAdapters
from .pinned_prefixes import PinnedPrefixes
from .prefill_budget import PrefillBudget
from .queue_policies import ClassedQueue, Outcome
from .sequence import Chunk, Sequence, State
from .speculation import Speculation
from .step_cost import StepCost, Work

# Adapters that are being copied may have one of this many parts of the pool: a copy's pages cannot be freed for an
# urgent request until it is complete.
_ARRIVING_SHARE = 4
# Seconds that a running batch waits at most, in one step, for the adapters of tenants with a guaranteed place: an
# adapter of rank 16 is copied in about one millisecond, and a step of 256 sequences takes twelve.
_MAX_COPY_WAIT_S = 0.003
# Tokens since the snapshot before that justify a snapshot of recurrent state: fewer are computed again as quickly as a
# snapshot is copied.
_LEAST_SNAPSHOT_TOKENS = 256


@dataclass(slots=True)
class StepPlan:
    """The plan of a step. ``failed`` are waiting sequences that can never run."""

    budget: int  # tokens that the step may still get
    chunks: dict[Sequence, Chunk] = field(default_factory=dict)
    failed: list[tuple[Sequence, RequestError]] = field(default_factory=list)
    work: Work = field(default_factory=Work)
    reads: list[Sequence] = field(default_factory=list)  # sequences whose prompts' hidden states are read

    def add(self, sequence: Sequence, tokens: int) -> Chunk:
        chunk = self.chunks[sequence] = Chunk(sequence, tokens)
        self.work.add(tokens, sequence.num_computed)
        self.budget -= tokens
        if sequence.reads_prompt:
            self.reads.append(sequence)
        return chunk

    def drop(self, sequence: Sequence) -> None:
        """Drop a sequence that is pre-empted after all; its part of the step's budget is left unused."""
        if chunk := self.chunks.pop(sequence, None):
            self.work.add(chunk.tokens, sequence.num_computed, -1)
            if sequence in self.reads:
                self.reads.remove(sequence)

    def add_drafts(self, sequence: Sequence, drafts: list[int]) -> None:
        """Add guessed tokens to the chunk of a sequence that decodes."""
        self.chunks[sequence] = Chunk(sequence, 1 + len(drafts), tuple(drafts))
        self.work.prompt_tokens += len(drafts)


class Scheduler:
    """The scheduler decides each step and owns the waiting queue, the running set and every sequence's pages."""

    def __init__(
        self,
        *,
        queue: ClassedQueue,
        allocator: PageAllocator,
        geometry: PoolGeometry,
        device_tier: DeviceTier,
        prefixes: PrefixCache,
        evictor: Evictor,
        source: AdapterSource,
        prefetch: int,
        step_tokens: int,
        max_running: int,
        min_prefill_share: float,
        clock: Callable[[], float],
        copy_pages: Callable[[list[int], list[int]], None],
        speculation: Speculation | None = None,
        draft_slots: DraftSlots | None = None,
        prompt_boundary: int = 1,
    ) -> None:
        """Create the scheduler. A model with recurrent layers needs ``draft_slots`` for drafts."""
        self.queue = queue
        self._draft_slots = draft_slots or DraftSlots(0, 0)
        self._prompt_boundary = prompt_boundary
        self.speculation = speculation
        self.running: dict[Sequence, Chunk] = {}  # with its chunk of one token, which is the same in most steps
        self._decoders = DecodeSet(geometry.page_tokens)
        self._others: dict[Sequence, None] = {}  # running sequences outside the decode set
        self._running_of = Counter[str]()  # running sequences of each tenant that has some
        self._max_running = min(max_running, step_tokens)  # each has a token in every step
        cost = StepCost()
        self.prefill_budget = PrefillBudget(cost, step_tokens, min_prefill_share)
        self.forecast = Forecast(queue, self.free_capacity, self._host_load_s, step_tokens, cost, self.prefill_budget)
        self._allocator = allocator
        self._geometry = geometry
        self._device_tier = device_tier
        self._prefixes = prefixes
        self._evictor = evictor
        self._source = source
        self.pinned = PinnedAdapters(device_tier, evictor, source, allocator.total, clock)
        self.pinned_prefixes = PinnedPrefixes(prefixes, geometry, lambda: self.pinned.pages_left)
        self._prefetch = prefetch
        self._step_tokens = step_tokens
        self._clock = clock
        self._copy_pages = copy_pages
        self._foreground_waits = False  # at the beginning of the step

    def schedule(self) -> StepPlan:
        """Return the next step's plan; every chunk in it has its pages and its adapter slot."""
        plan = StepPlan(self._step_tokens)
        self._foreground_waits = len(self.queue.foreground) > 0
        self._device_tier.collect_arrivals()
        self._start_underserved(plan)
        self._continue_running(plan)
        self._start_waiting(plan)
        self._continue_background(plan)
        if self.speculation is not None:
            self._add_drafts(plan, self.speculation)
        self._prefetch_adapters()
        if self.pinned.due():
            self.bring_pinned()
        return plan

    def add(self, sequence: Sequence) -> None:
        self.queue.of(sequence).push(sequence)
        self.forecast.queued(sequence)

    def adapter_on_device(self, digest: str) -> bool:
        return not digest or self._device_tier.on_device(digest)

    def free_capacity(self) -> FreeCapacity:
        """Return the room in the batch, with a page reserved for each running sequence."""
        pages = max(0, self._allocator.free + self._evictor.idle_pages - len(self.running))
        slots = min(self._max_running - len(self.running), pages // (self._geometry.state_pages + 1))
        return FreeCapacity(slots, pages * self._geometry.page_tokens)

    def finish(self, sequence: Sequence) -> None:
        """Remove a sequence in any state and release its resources."""
        if sequence.state is State.WAITING:
            self.queue.of(sequence).remove(sequence)
            self.forecast.unqueued(sequence)
        elif sequence.state is State.RUNNING:
            self._leave_running(sequence)
        sequence.state = State.FINISHED

    def defer(self, sequence: Sequence) -> None:
        """Take a running sequence out of the decode set: it may not decode in the next step."""
        if self._decoders.remove(sequence):
            self.queue.of(sequence).pauses(sequence)
            self._others[sequence] = None

    def bring_pinned(self) -> bool:
        """Begin to copy a missing pinned adapter into room that running sequences will not need.

        Returns whether a copy was begun.
        """
        begun = self.pinned.bring(sum(self._pages_to_come(sequence) for sequence in self.running))
        self.pinned_prefixes.settle()
        return begun

    def cache_prefix(self, sequence: Sequence) -> None:
        """Share the keys and values that the sequence has computed for known tokens."""
        known = sequence.token_ids[: sequence.cacheable]
        self._prefixes.insert(sequence.prefix_key, known, sequence.pages, sequence.activation)

    def can_ever_fit(self, tokens: int, adapter_pages: int) -> bool:
        """Return whether a sequence of ``tokens`` tokens and its adapter fit into the empty pool."""
        stats = self._allocator.stats()
        return self._geometry.pages_for_sequence(tokens) + adapter_pages <= stats.total - stats.reserved

    def keep_state(self, sequence: Sequence) -> None:
        """Copy the state of a launched sequence if it is at the end of a prefix that is worth it."""
        if sequence.num_computed not in sequence.snapshots_at:
            return
        self.cache_prefix(sequence)
        needed = self._geometry.state_pages
        if self._allocator.free < needed and not self._evictor.free_up(needed + len(self.running)):
            return
        pages, tokens = self._allocator.allocate(needed, PageKind.CACHED_PREFIX), sequence.token_ids
        known = tokens[: sequence.num_computed]
        if self._prefixes.keep_state(sequence.prefix_key, known, pages, sequence.activation):
            self._copy_pages(sequence.state_pages, pages)
        else:
            self._allocator.release(pages)

    def _continue_running(self, plan: StepPlan) -> None:
        pauses = self._pause_background(plan.budget)
        # Decoding sequences first: a long prompt's next chunk must not delay the next token of all others.
        for sequence in self._decoders.begin_step():
            if self._allocator.free and not sequence.ends_by_length:
                sequence.pages += self._allocator.allocate(1)
                self._decoders.renew(sequence)
            else:
                self._decoders.remove(sequence)
                self.queue.of(sequence).pauses(sequence)
                self._others[sequence] = None
        plan.chunks.update(self._decoders.chunks)
        plan.work = Work(len(self._decoders), 0, self._decoders.context)
        plan.budget -= len(self._decoders)
        decodes = [s for s in self._others if s.remaining <= 1 and not (pauses and s.request.slo.background)]
        prefills = [sequence for sequence in self._others if sequence.remaining > 1 and not self._comes_last(sequence)]
        for sequence in decodes:
            self._continue(sequence, plan)
        self.prefill_budget.begin_step(plan.work)
        for sequence in self.queue.prefill_order(prefills):
            self._continue(sequence, plan)
        self.queue.stepped()
        self._served(plan, decodes + prefills)

    def _add_drafts(self, plan: StepPlan, speculation: Speculation) -> None:
        """Add drafts to decoding sequences, in what the plan has left of the step: no token and no page of a sequence
        is given up for them.

        A step has at most as many decode rows as running sequences are allowed; its workspaces have no more.
        """
        candidates = [*speculation.candidates(len(self.running))]
        used = sum(chunk.tokens for chunk in plan.chunks.values()) if candidates else 0
        room = min(self._step_tokens - used, self._max_running - len(plan.chunks))
        for index, (sequence, drafts) in enumerate(candidates):
            chunk = plan.chunks.get(sequence)
            if chunk is None or not (chunk.samples and chunk.tokens == 1):
                continue
            most = min(-(-room // (len(candidates) - index)), sequence.longest - len(sequence.token_ids) - 1)
            if drafts := drafts[: self._fitting_drafts(sequence, min(most, len(drafts)))]:
                self.defer(sequence)  # how many tokens it has after this step is not known yet
                plan.add_drafts(sequence, drafts)
                room -= len(drafts)

    def _fitting_drafts(self, sequence: Sequence, count: int) -> int:
        """Return how many of ``count`` drafts have slots, on its pages or on free ones that nobody needs next."""
        needed = self._pages_needed(sequence, 1 + count)
        if needed > 0 and self._allocator.free >= needed + len(self.running):
            sequence.pages += self._allocator.allocate(needed)
        slots = len(sequence.pages) * self._geometry.page_tokens - sequence.num_computed - 1
        fitting = max(0, min(count, slots))
        return self._draft_slots.fitting(sequence, fitting) if self._geometry.state_pages else fitting

    def _pause_background(self, budget: int) -> bool:
        """Let background sequences wait with their next token if foreground prompts would take all tokens of the step.

        Returns whether they do. The prompts then need as many steps as without them, and shorter ones.
        """
        if not self.queue.runs_background:
            return False
        prompts = sum(s.remaining for s in self._others if s.remaining > 1 and not s.request.slo.background)
        decodes = len(self._decoders) + sum(s.remaining <= 1 for s in self._others)
        if not prompts or prompts + decodes <= budget:
            return False
        for sequence in [s for s in self._decoders.chunks if s.request.slo.background]:
            self.defer(sequence)
        return True

    def _continue_background(self, plan: StepPlan) -> None:
        """Give background prompts the step's tokens that waiting foreground requests leave."""
        prefills = [s for s in self._others if s.remaining > 1 and self._comes_last(s) and s not in plan.chunks]
        for sequence in prefills:
            self._continue(sequence, plan)
        self._served(plan, prefills)

    def _comes_last(self, sequence: Sequence) -> bool:
        return sequence.request.slo.background and self._foreground_waits

    def _served(self, plan: StepPlan, sequences: list[Sequence]) -> None:
        served = [chunk for sequence in sequences if (chunk := plan.chunks.get(sequence))]
        self.queue.served(served)
        for chunk in served:
            self._keep_decoding(chunk)

    def _keep_decoding(self, chunk: Chunk) -> None:
        """Add a sequence that decodes in this step to the decode set, if it certainly continues.

        With drafts it would leave the set at once.
        """
        sequence = chunk.sequence
        if self.speculation is not None and self.speculation.is_promising(sequence):
            return
        if sequence.remaining == 1 and sequence.runs_ahead and self._decoders.add(self.running[sequence]):
            del self._others[sequence]
            self.queue.of(sequence).decodes(sequence)

    def _continue(self, sequence: Sequence, plan: StepPlan) -> None:
        """Plan a running sequence's next tokens, as many as the step has left for it."""
        if sequence.dormant is not None and sequence.activate():
            self.cache_prefix(sequence)  # the tokens before are the base model's, which others may share immediately
        tokens = sequence.whole_chunk(min(sequence.chunkable, plan.budget), self._prompt_boundary)
        if not tokens or sequence not in self.running or sequence.awaits_mask:
            return  # nothing left this step, or it was pre-empted, or its mask is not ready
        if sequence.remaining > 1:
            tokens = self.prefill_budget.take(tokens)
        if not tokens or (sequence.pending and sequence.ends_by_length) or not self._reserve(sequence, tokens, plan):
            return
        if plan.add(sequence, tokens).samples:
            self.prefill_budget.decodes(sequence)

    def _reserve(self, sequence: Sequence, tokens: int, plan: StepPlan) -> bool:
        """Allocate pages for a sequence's next ``tokens``, pre-empting if necessary; False if it was
        pre-empted itself.
        """
        needed = self._pages_needed(sequence, tokens)
        if needed <= 0:
            return True
        while self._allocator.free < needed and not self._evictor.free_up(needed, pins_too=len(self.running) == 1):
            victim = self.queue.victim(self.running)
            plan.drop(victim)
            self._preempt(victim)
            if victim is sequence:
                return False
        sequence.pages += self._allocator.allocate(needed)
        return True

    def _start_underserved(self, plan: StepPlan) -> None:
        """Start sequences of tenants that have far less than their share of the batch, in place of others if necessary.

        Their first tokens are planned with those of the running sequences.
        """
        self.queue.fill_underserved(lambda sequence: self._attempt(sequence, plan, self._enter_in_place_of_others))

    def _enter_in_place_of_others(self, sequence: Sequence, plan: StepPlan) -> Outcome:
        is_first = not self._running_of[sequence.request.tenant]
        if self.prefill_budget.enforces and not is_first:
            return Outcome.BUSY  # an objective between tokens yields only to a tenant's first sequence
        outcome = self._bring_adapter(sequence, goes_first=is_first)
        if outcome is Outcome.NO_ROOM and self._preempt_for_pages(sequence):
            outcome = self._bring_adapter(sequence, goes_first=is_first)
        if outcome is not Outcome.STARTED:
            return outcome
        while len(self.running) >= self._max_running:
            victim = self.queue.place_victim(sequence, self.running)
            if victim is None:
                return Outcome.FULL
            self._preempt(victim)
        entered = self._enter_running(sequence) or (self._preempt_for_pages(sequence) and self._enter_running(sequence))
        return Outcome.STARTED if entered else Outcome.NO_ROOM

    def _preempt_for_pages(self, sequence: Sequence) -> bool:
        """Free the pages that a sequence and its adapter lack by pre-emption; returns False, without any, if
        impossible.
        """
        digest = sequence.request.adapter_digest
        slot = self._device_tier.get(digest) if digest else None
        packed = self._source.get(digest) if digest and slot is None else None
        of_adapter = self._device_tier.least_pages(packed) if packed else 0
        wanted = self._geometry.pages_for_sequence(len(sequence.token_ids) + 1) + of_adapter
        idle = self._evictor.idle_pages - self._device_tier.arriving_idle_pages
        if slot is not None and not (slot.refs or slot.pinned or slot.arrival):  # its own adapter is not evicted for it
            idle -= len(slot.pages)
        lacking = wanted + len(self.running) - self._allocator.free - idle
        victims: list[Sequence] = []
        holders, users = Counter[int](), Counter[AdapterSlot]()
        candidates = self.queue.page_victims(sequence, self.running)
        while lacking > 0 and (victim := next(candidates, None)) is not None:
            victims.append(victim)
            lacking -= 1  # the page reserved for its next token
            lacking -= len(victim.state_pages)
            holders.update(victim.pages)
            lacking -= sum(holders[page] == self._allocator.users(page) for page in victim.pages)
            if (slot := victim.slot or victim.dormant) is not None:
                users[slot] += 1
                ends = users[slot] == slot.refs and not slot.pinned
                lacking -= self._device_tier.kept_pages(slot) if ends else 0  # others need no pre-emption
        if lacking > 0 or not victims:
            return False
        for victim in victims:
            self._preempt(victim)
        return True

    def _start_waiting(self, plan: StepPlan) -> None:
        """Fill the rest of the batch with the rest of the step's tokens."""
        if plan.budget > 0 and (len(self.running) < self._max_running or self.queue.runs_background):
            self.queue.fill(lambda sequence: self._attempt(sequence, plan, self._enter))

    def _enter(self, sequence: Sequence, plan: StepPlan) -> Outcome:
        """Let a waiting sequence run, with its first chunk in this step."""
        while len(self.running) >= self._max_running and self._make_way(sequence, plan):
            pass
        running = len(self.running)
        if plan.budget < self._prompt_boundary or running >= self._max_running:
            return Outcome.FULL
        if not self.prefill_budget.may_start(running):
            return Outcome.FULL
        while True:
            outcome = self._bring_adapter(sequence)
            if outcome is Outcome.STARTED and not self._enter_running(sequence):
                outcome = Outcome.NO_ROOM
            if outcome is not Outcome.NO_ROOM or not self._make_way(sequence, plan):
                break
        if outcome is Outcome.STARTED:
            self._continue(sequence, plan)
            if chunk := plan.chunks.get(sequence):
                self.queue.served((chunk,))
        return outcome

    def _attempt(self, sequence: Sequence, plan: StepPlan, enter: Callable[[Sequence, StepPlan], Outcome]) -> Outcome:
        """Try to let a sequence run that the queue offers: by ``enter``, if it may run at all."""
        if sequence.pending:
            return Outcome.BUSY
        if any(sequence is failed for failed, _ in plan.failed):
            return Outcome.FAILED
        try:
            outcome = enter(sequence, plan)
        except RequestError as error:
            plan.failed.append((sequence, error))
            return Outcome.FAILED
        if outcome is not Outcome.STARTED and outcome is not Outcome.FULL:
            sequence.last_outcome = outcome
        return outcome

    def _make_way(self, sequence: Sequence, plan: StepPlan) -> bool:
        """Pre-empt a background sequence for a foreground one; returns whether there was one."""
        if sequence.request.slo.background or not self.queue.runs_background:
            return False
        victim = self.queue.victim(self.running)
        plan.drop(victim)
        self._preempt(victim)
        return True

    def _bring_adapter(self, sequence: Sequence, *, goes_first: bool = False) -> Outcome:
        """Return STARTED if a batch may use the sequence's adapter now; otherwise start its load.

        Raises ``RequestError`` if it can never be loaded.
        """
        digest = sequence.request.adapter_digest
        if not digest:
            return Outcome.STARTED
        slot = self._device_tier.get(digest) or self._copy_to_device(sequence, digest, goes_first=goes_first)
        if isinstance(slot, Outcome):
            return slot
        needed = sequence.request_state.vocab_needed
        if needed > slot.layout.vocab_size:  # the vocabulary was unknown when the request came
            raise RequestError(
                "invalid_value",
                f"The request holds token id {needed - 1}, which neither the base model nor the adapter has.",
                "Tokenise the prompt with the adapter's tokenizer.",
                param="prompt",
            )
        if self._device_tier.ready(slot):
            return Outcome.STARTED
        # With nothing else to run, the device waits for the copy. It also waits for a short copy of a tenant that goes
        # first, which would otherwise lose a whole step.
        waits = not self.running or (goes_first and self._device_tier.arrival_seconds <= _MAX_COPY_WAIT_S)
        return Outcome.STARTED if waits else Outcome.LOADING

    def _copy_to_device(self, sequence: Sequence, digest: str, *, goes_first: bool = False) -> AdapterSlot | Outcome:
        """Begin to copy an adapter from host memory.

        Returns LOADING if it is not in host memory, or has to wait for other copies unless it ``goes_first``; NO_ROOM
        if its pages are not free.
        """
        self._note_wait(sequence)
        packed = self._source.get(digest)
        if packed is None:
            self._start_load(digest)
            sequence.request_state.usage.adapter_loaded_from = "disk"
            return Outcome.LOADING
        arriving = self._device_tier.arriving_idle_pages
        wanted, least = self._device_tier.pages_wanted(packed), self._device_tier.least_pages(packed)
        if arriving and not goes_first and arriving + wanted > self._allocator.total // _ARRIVING_SHARE:
            return Outcome.LOADING
        pages = self._geometry.pages_for_sequence(len(sequence.token_ids) + 1) + len(self.running)
        if wanted > least and self._evictor.free_up(wanted + pages):
            return self._device_tier.load(packed, spare=pages)
        if not self._evictor.free_up(least + len(self.running), pins_too=not self.running):
            # The adapter's size was unknown on arrival. A sequence that can never fit would block the queue.
            if not self.can_ever_fit(sequence.num_prompt + sequence.max_tokens, least):
                raise too_large_for_host()
            return Outcome.NO_ROOM
        return self._device_tier.load(packed, spare=pages)

    def _host_load_s(self, digest: str) -> float | None:
        """Return the seconds to copy the adapter to the device: 0 if it is there, None if it is not in host memory."""
        if self._device_tier.on_device(digest):
            return 0.0
        packed = self._source.get(digest)
        return None if packed is None else self._device_tier.copy_seconds(self._device_tier.pages_wanted(packed))

    def _note_wait(self, sequence: Sequence) -> None:
        request_state = sequence.request_state
        if request_state.adapter_wait_started is None:
            request_state.adapter_wait_started = self._clock()
            usage = request_state.usage
            usage.adapter_loaded_from = usage.adapter_loaded_from or "host"

    def _prefetch_adapters(self) -> None:
        """Load the adapters of the next waiting sequences before they start."""
        if self._device_tier.num_arriving >= self._prefetch:
            return
        soon = [s for s in self.queue.upcoming(self._prefetch) if s.request.adapter_digest]
        missing = [s for s in soon if self._device_tier.get(s.request.adapter_digest) is None]
        if not missing:
            return
        for sequence in soon:  # adapters that are needed soon must not be evicted for others
            self._device_tier.refresh(sequence.request.adapter_digest)
        for sequence in missing:
            if self._device_tier.get(sequence.request.adapter_digest) is None:
                with suppress(RequestError):  # the request is refused when it is scheduled
                    self._copy_to_device(sequence, sequence.request.adapter_digest)

    def _start_load(self, digest: str) -> None:
        """Load an adapter from disk to host memory. Raises ``RequestError`` if that is impossible."""
        if error := self._source.load_error(digest):
            raise error
        if not self._source.knows(digest):
            raise RequestError(
                "adapter_not_found",
                f"The adapter {digest} is not on this host.",
                "Stage the adapter on this host, or send the request to a host that has it.",
                param="model",
                retry_after_ms=1000,
            )
        self._source.request_load(digest)

    def _enter_running(self, sequence: Sequence) -> bool:
        """Give the sequence its cached prefix and its adapter; return False if the rest does not fit now."""
        digest = sequence.request.adapter_digest
        slot = self._device_tier.get(digest) if digest else None
        if slot is not None:
            self._device_tier.acquire(slot)  # keeps its own adapter from being evicted for it
            sequence.find_activation(slot)
        tokens, cached = sequence.shareable, None
        if self._geometry.state_pages:
            cached = self._prefixes.find_state(sequence.prefix_key, tokens, sequence.activation)
            tokens = tokens[: cached.depth * self._geometry.page_tokens + 1]
        pages = self._prefixes.acquire(sequence.prefix_key, tokens, sequence.activation)
        # Keep a page for every running sequence, else the next steps would pre-empt sequences that have just started.
        wanted = self._geometry.pages_for_sequence(len(sequence.token_ids) + 1) - len(pages) + len(self.running)
        if not self._has_room(wanted, cached):
            self._prefixes.release(pages)
            if slot is not None:
                self._device_tier.release(slot)
            return False
        if cached is not None:
            self._give_state(sequence, cached)
        if slot is not None:
            self._device_tier.join(slot)
        if sequence.request_state.loads_from_disk and sequence.request_state.adapter_wait_started is not None:
            self.forecast.loaded_from_disk(self._clock() - sequence.request_state.adapter_wait_started)
        sequence.start(slot, pages, len(pages) * self._geometry.page_tokens, self._clock())
        self.running[sequence] = Chunk(sequence, 1)
        self._running_of[sequence.request.tenant] += 1
        self._others[sequence] = None
        self.forecast.entered(sequence)
        return True

    def _has_room(self, wanted: int, cached: CachedState | None) -> bool:
        """Free ``wanted`` pages, but not those of a cached snapshot; returns False if that is impossible."""
        snapshot = None if cached is None else cached.snapshot
        if snapshot is not None:
            self._prefixes.hold(snapshot)
        fits = self._allocator.free >= wanted or self._evictor.free_up(wanted, pins_too=not self.running)
        if snapshot is not None:
            self._prefixes.let_go(snapshot)
        return fits

    def _give_state(self, sequence: Sequence, cached: CachedState) -> None:
        """Allocate the pages of a sequence's state, restore it after a cached prefix, and choose where to copy it.

        The state is copied at the end of the prompt's last full page, for the conversation's next turn, and where the
        prompt parts from others whose keys and values are cached without a state there.
        """
        sequence.state_pages = self._allocator.allocate(self._geometry.state_pages, PageKind.STATE)
        if cached.snapshot is not None:
            self._copy_pages(cached.snapshot.pages, sequence.state_pages)
        if not self._prefixes.enabled:
            return
        size = self._geometry.page_tokens
        last = min(len(sequence.token_ids) - 1, sequence.num_prompt) // size * size
        start, chosen = cached.depth * size, []
        for at in sorted({self._last_boundary(sequence, pages) for pages in (cached.known, last // size)}):
            if at - start >= (_LEAST_SNAPSHOT_TOKENS if not sequence.request.pin else 1):
                chosen.append(at)
                start = at
        sequence.snapshots_at = tuple(chosen)

    def _last_boundary(self, sequence: Sequence, pages: int) -> int:
        """Return the end of the last of a prompt's first ``pages`` pages where a chunk may end; 0 if there is none."""
        ends = (page * self._geometry.page_tokens for page in range(pages, 0, -1))
        return next((at for at in ends if sequence.may_end_chunk(at, self._prompt_boundary)), 0)

    def _preempt(self, victim: Sequence) -> None:
        self._leave_running(victim)
        victim.state = State.WAITING
        victim.request_state.usage.preemptions += 1
        victim.preempted_at = self._clock()
        self.add(victim)

    def _leave_running(self, sequence: Sequence) -> None:
        del self.running[sequence]
        if self.speculation is not None:
            self.speculation.left(sequence)
        tenant = sequence.request.tenant
        self._running_of[tenant] -= 1
        if not self._running_of[tenant]:
            del self._running_of[tenant]
        if not self._decoders.remove(sequence):
            del self._others[sequence]
        self.queue.left(sequence)
        self.prefill_budget.left(sequence)
        self.forecast.left(sequence)
        self.cache_prefix(sequence)
        if sequence.request.pin:
            self.pinned_prefixes.computed(sequence)
        self._prefixes.release(sequence.pages)
        self._allocator.release(sequence.state_pages)
        self._draft_slots.release(sequence)
        sequence.replays = 0
        sequence.pages, sequence.state_pages, sequence.snapshots_at, sequence.num_computed = [], [], (), 0
        if (slot := sequence.slot or sequence.dormant) is not None:
            self._device_tier.release(slot)
            sequence.slot = sequence.dormant = None

    def _pages_to_come(self, sequence: Sequence) -> int:
        """Return the pages that a running sequence still needs for known tokens, and one more."""
        return max(0, self._geometry.pages_for_tokens(len(sequence.token_ids) + 1) - len(sequence.pages)) + 1

    def _pages_needed(self, sequence: Sequence, tokens: int) -> int:
        return self._geometry.pages_for_tokens(sequence.num_computed + tokens) - len(sequence.pages)


def too_large_for_host() -> RequestError:
    return RequestError(
        "too_large_for_host",
        "The request and its adapter do not fit into this host's memory pool.",
        "Lower max_tokens, or ask the operator for a larger pool.",
        param="max_tokens",
    )
