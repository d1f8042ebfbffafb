"""Iteration-level scheduling over one page pool.

There is no prefill phase and no decode phase: each step has a token budget, running
sequences take theirs first (one token each to decode), what is left goes to prefill chunks
of running and newly admitted sequences. When pages run out, idle adapters go first, then
the order policy names a running sequence to pre-empt by recompute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lora_engine.adapters.residency import AdapterResidency, AdapterSlot
from lora_engine.adapters.source import AdapterSource
from lora_engine.memory import PageAllocator, PoolGeometry
from lora_engine.request import RequestError

from .order import Order
from .sequence import Sequence, State


@dataclass(frozen=True, slots=True)
class Chunk:
    """``tokens`` tokens of ``sequence`` to process this step, from ``sequence.num_computed`` on."""

    sequence: Sequence
    tokens: int

    @property
    def samples(self) -> bool:
        """Whether the chunk reaches the sequence's end, so that its last row yields a token."""
        return self.tokens == self.sequence.remaining


@dataclass(slots=True)
class StepPlan:
    """What runs this step. ``failed`` are waiting sequences that can never run."""

    chunks: dict[Sequence, Chunk] = field(default_factory=dict)
    failed: list[tuple[Sequence, RequestError]] = field(default_factory=list)

    def add(self, sequence: Sequence, tokens: int) -> None:
        self.chunks[sequence] = Chunk(sequence, tokens)


class Scheduler:
    """Decides each step; owns the waiting queue, the running set and every sequence's pages."""

    def __init__(
        self,
        *,
        order: Order,
        allocator: PageAllocator,
        geometry: PoolGeometry,
        residency: AdapterResidency,
        source: AdapterSource,
        step_tokens: int,
        max_running: int,
        clock: Callable[[], float],
    ) -> None:
        self.waiting = order
        self.running: dict[Sequence, None] = {}
        self._allocator = allocator
        self._geometry = geometry
        self._residency = residency
        self._source = source
        self._step_tokens = step_tokens
        self._max_running = max_running
        self._clock = clock

    def schedule(self) -> StepPlan:
        """The next step's plan; every chunk in it has its pages and its adapter slot."""
        plan = StepPlan()
        budget = self._continue_running(plan, self._step_tokens)
        self._admit_waiting(plan, budget)
        return plan

    def add(self, sequence: Sequence) -> None:
        self.waiting.push(sequence)

    def finish(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it is, and give back what it held."""
        if sequence.state is State.WAITING:
            self.waiting.remove(sequence)
        elif sequence.state is State.RUNNING:
            self._leave_running(sequence)
        sequence.state = State.FINISHED

    def can_ever_fit(self, tokens: int, adapter_pages: int) -> bool:
        """Whether a sequence of ``tokens`` tokens beside its adapter fits into the empty pool."""
        stats = self._allocator.stats()
        return self._geometry.pages_for_tokens(tokens) + adapter_pages <= stats.total - stats.reserved

    def _continue_running(self, plan: StepPlan, budget: int) -> int:
        # Decoding sequences first: a long prompt's next chunk must not stall everybody's next token.
        for sequence in sorted(self.running, key=lambda s: s.remaining > 1):
            if sequence.pending and sequence.ends_by_length:
                continue
            tokens = min(sequence.remaining, budget)
            if tokens and sequence.state is State.RUNNING and self._reserve(sequence, tokens, plan):
                plan.add(sequence, tokens)
                budget -= tokens
        return budget

    def _reserve(self, sequence: Sequence, tokens: int, plan: StepPlan) -> bool:
        """Give ``sequence`` pages for its next ``tokens``, pre-empting if need be; False if it gave way itself."""
        needed = self._pages_needed(sequence, tokens)
        while self._allocator.free < needed and not self._residency.evict_idle(needed):
            victim = self.waiting.victim(self.running)
            plan.chunks.pop(victim, None)  # its share of the step's budget is left unused
            self._preempt(victim)
            if victim is sequence:
                return False
        sequence.pages += self._allocator.allocate(needed)
        return True

    def _admit_waiting(self, plan: StepPlan, budget: int) -> None:
        admitted: list[Sequence] = []
        for sequence in self.waiting:
            if budget <= 0 or len(self.running) >= self._max_running:
                break
            if sequence.pending:
                continue  # pre-empted with its last token still on the device
            try:
                slot_known = self._adapter_pages(sequence)
            except RequestError as error:
                plan.failed.append((sequence, error))
                continue
            if slot_known is None:
                continue  # its adapter is on the way; later arrivals may pass meanwhile
            if not self._make_room(sequence, slot_known):
                break
            self._enter_running(sequence)
            tokens = min(sequence.remaining, budget)
            sequence.pages += self._allocator.allocate(self._pages_needed(sequence, tokens))
            plan.add(sequence, tokens)
            budget -= tokens
            admitted.append(sequence)
        for sequence in admitted:
            self.waiting.remove(sequence)

    def _adapter_pages(self, sequence: Sequence) -> int | None:
        """Pages the adapter still has to take on the device; None while it is not in host memory.

        Raises ``RequestError`` if it will never be there.
        """
        digest = sequence.request.adapter_digest
        if not digest or self._residency.get(digest):
            return 0
        packed = self._source.get(digest)
        if packed is not None:
            return packed.num_pages
        self._start_load(sequence, digest)
        return None

    def _start_load(self, sequence: Sequence, digest: str) -> None:
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
        timeline = sequence.parent.timeline
        if timeline.adapter_wait_started is None:
            timeline.adapter_wait_started = self._clock()
        self._source.request_load(digest)

    def _make_room(self, sequence: Sequence, adapter_pages: int) -> bool:
        """Whether the whole prompt, the adapter, and a page for every running sequence fit; evicts idle adapters."""
        wanted = self._geometry.pages_for_tokens(len(sequence.token_ids) + 1) + adapter_pages
        wanted += len(self.running)  # else the next steps would pre-empt what they just admitted
        if self._allocator.free >= wanted:
            return True
        slot = self._residency.get(sequence.request.adapter_digest)
        if slot is None:
            return self._residency.evict_idle(wanted)
        self._residency.acquire(slot)  # its own adapter must not be what makes room for it
        try:
            return self._residency.evict_idle(wanted)
        finally:
            self._residency.release(slot)

    def _enter_running(self, sequence: Sequence) -> None:
        now = self._clock()
        timeline = sequence.parent.timeline
        if timeline.adapter_wait_started is not None:
            timeline.adapter_wait += now - timeline.adapter_wait_started
            timeline.adapter_wait_started = None
        sequence.slot = self._slot(sequence)
        timeline.adapter_wait += self._clock() - now
        if timeline.first_scheduled is None:
            timeline.first_scheduled = self._clock()
        sequence.state = State.RUNNING
        self.running[sequence] = None

    def _slot(self, sequence: Sequence) -> AdapterSlot | None:
        digest = sequence.request.adapter_digest
        if not digest:
            return None
        slot = self._residency.get(digest)
        if slot is None:
            packed = self._source.get(digest)
            assert packed is not None, "checked by _adapter_pages in the same step"
            slot = self._residency.load(packed)
        self._residency.acquire(slot)
        return slot

    def _preempt(self, victim: Sequence) -> None:
        self._leave_running(victim)
        victim.num_computed = 0
        victim.state = State.WAITING
        victim.parent.usage.preemptions += 1
        self.waiting.push(victim)

    def _leave_running(self, sequence: Sequence) -> None:
        del self.running[sequence]
        self._allocator.release(sequence.pages)
        sequence.pages = []
        if sequence.slot is not None:
            self._residency.release(sequence.slot)
            sequence.slot = None

    def _pages_needed(self, sequence: Sequence, tokens: int) -> int:
        return self._geometry.pages_for_tokens(sequence.num_computed + tokens) - len(sequence.pages)
