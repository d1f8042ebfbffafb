"""The engine's scheduling without a model: real scheduler, policies, pool and device tier, a virtual clock.

Steps take what a step-time model says instead of what a device needs, so that hours of traffic can be played against
settings in minutes, on one core, with the same result every time. Nothing here imitates a policy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from .adapters.device_tier import AdapterSlot, DeviceTier
from .adapters.layout import AdapterLayout, PackedAdapter
from .config import EngineConfig
from .memory import EvictionQueue, PageAllocator, PagePool, PoolGeometry, PrefixCache, RestoreCosts
from .request import GenerationRequest, RequestError, RequestUsage
from .scheduling.admission_controller import AdmissionController
from .scheduling.admissions import admissions
from .scheduling.evictor import Evictor
from .scheduling.merge_policies import UNMERGED, Applied, Batch, merge_policies
from .scheduling.queue_policies import PolicyContext, queue_policies
from .scheduling.scheduler import Scheduler, StepPlan
from .scheduling.sequence import Chunk, RequestState, Sequence, State, Timeline

# Nothing runs and something is being loaded: how far the clock goes before the next look.
_IDLE_STEP_S = 0.001


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of a step: a constant, and what each sequence, prompt token, cached token read and unit of rank adds."""

    step: float
    sequence: float = 0.0
    prompt_token: float = 0.0
    context_token: float = 0.0
    rank: float = 0.0  # per token and unit of its adapter's rank
    distinct_rank: float = 0.0  # per distinct adapter and unit of its rank
    lora: float = 0.0  # if LoRA kernels run at all
    merge: float = 0.0  # an adapter is merged before the step

    def seconds(self, chunks: Iterable[Chunk], merged: AdapterSlot | None = None) -> float:
        """Tokens of a merged adapter need nothing for it; all others pay for their own and for taking it out."""
        sequences = prompt = context = rank = 0
        distinct: dict[int, int] = {}
        for chunk in chunks:
            sequence = chunk.sequence
            if chunk.tokens > 1 or sequence.num_computed < sequence.num_prompt:
                prompt += chunk.tokens
            else:
                sequences += 1
                context += sequence.num_computed
            if sequence.slot is merged:
                continue
            for slot in (sequence.slot, merged):
                if slot is not None:
                    rank += slot.rank * chunk.tokens
                    distinct[slot.generation] = slot.rank
        return (
            self.step
            + self.sequence * sequences
            + self.prompt_token * prompt
            + self.context_token * context
            + self.rank * rank
            + self.distinct_rank * sum(distinct.values())
            + self.lora * bool(distinct)
        )


@dataclass(frozen=True, slots=True)
class SimulatedAdapter:
    """An adapter's size in the pool and where it is at the start."""

    digest: str
    rank: int
    pages: int
    on_disk: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a request; times in seconds of the virtual clock."""

    request: GenerationRequest
    outcome: str  # "finished" | "refused"
    submitted: float
    first_token: float | None
    ended: float
    usage: RequestUsage
    predicted_first_token: float | None = None
    error: RequestError | None = None


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class TimedCopies:
    """Copies to the device, one after another, each as long as its pages take."""

    def __init__(self, clock: Clock, page_s: float) -> None:
        self._clock = clock
        self._page_s = page_s
        self._free_at = 0.0
        self.next_pages = 0

    def start(self, copy: Callable[[], None]) -> TimedArrival | None:
        copy()
        if not self._page_s:
            return None
        duration = self.next_pages * self._page_s
        self._free_at = max(self._free_at, self._clock.now) + duration
        return TimedArrival(self._clock, self._free_at, duration)


@dataclass(slots=True)
class TimedArrival:
    clock: Clock
    at: float
    duration: float

    def done(self) -> bool:
        return self.clock.now >= self.at

    def join(self) -> None:
        """The device waits: the clock goes on."""
        self.clock.now = max(self.clock.now, self.at)

    def seconds(self) -> float:
        return self.duration


class TimedSource:
    """Adapters in host memory, and on a disk from which each takes ``disk_s`` seconds."""

    def __init__(self, adapters: Iterable[SimulatedAdapter], clock: Clock, copies: TimedCopies, disk_s: float) -> None:
        largest = torch.zeros(1, max((a.pages for a in adapters), default=1), _GEOMETRY_ELEMS)
        self._packed = {
            a.digest: PackedAdapter(a.digest, a.rank, AdapterLayout(((),), a.pages), largest[:, : a.pages])
            for a in adapters
        }
        self._here_at = {a.digest: float("inf") if a.on_disk else 0.0 for a in adapters}
        self._clock = clock
        self._copies = copies
        self._disk_s = disk_s

    def knows(self, digest: str) -> bool:
        return digest in self._packed

    def get(self, digest: str) -> PackedAdapter | None:
        if digest not in self._packed or self._clock.now < self._here_at[digest]:
            return None
        packed = self._packed[digest]
        self._copies.next_pages = packed.num_pages
        return packed

    def request_load(self, digest: str) -> None:
        if self._here_at[digest] == float("inf"):
            self._here_at[digest] = self._clock.now + self._disk_s

    def load_error(self, digest: str) -> RequestError | None:
        return None


_PAGE_TOKENS = 16
_GEOMETRY_ELEMS = 2 * _PAGE_TOKENS


@dataclass(slots=True)
class Machine:
    """What is simulated: the pool, the adapters and how fast everything is."""

    times: StepTimes
    pages: int
    adapters: list[SimulatedAdapter] = field(default_factory=list)
    copy_page_s: float = 0.0  # host memory to device, per page
    disk_s: float = 0.0  # disk to host memory, per adapter


class SimulatedEngine:
    """Requests in, ends out, on a virtual clock. Arrivals must be submitted in order of time."""

    def __init__(self, machine: Machine, config: EngineConfig | None = None, **settings: Any) -> None:
        self.config = config or EngineConfig(model=cast(Any, "none"), **settings)
        self.clock = Clock()
        self.times = machine.times
        geometry = PoolGeometry(1, _PAGE_TOKENS, 1, 1)
        pool = PagePool(geometry, machine.pages, torch.float32, torch.device("cpu"))
        self.allocator = PageAllocator(machine.pages)
        queue, costs = EvictionQueue(), RestoreCosts()
        copies = TimedCopies(self.clock, machine.copy_page_s)
        self.source = TimedSource(machine.adapters, self.clock, copies, machine.disk_s)
        self.prefixes = PrefixCache(self.allocator, _PAGE_TOKENS, queue, costs, enabled=self.config.prefix_cache)
        self.device_tier = DeviceTier(pool, self.allocator, _SHAPES, self.clock, None, queue, costs, cast(Any, copies))
        context = PolicyContext(self.config, self.clock, self.device_tier.on_device, machine.pages * _PAGE_TOKENS)
        self.order = queue_policies.create(self.config.order, context)
        self.scheduler = Scheduler(
            order=self.order,
            allocator=self.allocator,
            geometry=geometry,
            device_tier=self.device_tier,
            prefixes=self.prefixes,
            evictor=Evictor(self.allocator, queue, self.device_tier, self.prefixes),
            source=self.source,
            prefetch=self.config.prefetch,
            step_tokens=self.config.step_tokens,
            max_running=self.config.max_running,
            min_prefill_share=self.config.min_prefill_share,
            clock=self.clock,
        )
        self.forecast = self.scheduler.forecast
        self.admission = AdmissionController(
            admissions.create(self.config.admission, context, self.forecast), self.forecast, self.clock
        )
        self.mode = merge_policies.create(self.config.mode)
        self.ended: list[Ended] = []
        self.steps = 0
        self.merges = 0
        self._merged: AdapterSlot | None = None
        self.busy_s = 0.0
        self._arrivals = 0

    def submit(self, request: GenerationRequest, at: float | None = None) -> bool:
        """Queue a request that came at ``at`` (now); False if it was refused."""
        submitted = self.clock.now if at is None else at
        usage = RequestUsage(request.request_id, request.tenant, request.adapter_digest)
        state = RequestState(request, Timeline(submitted), usage)
        self._arrivals += 1
        sequence = Sequence(
            state, 0, self._arrivals, list(request.prompt_token_ids), request.sampling.max_tokens, cast(Any, None)
        )
        state.sequences.append(sequence)
        try:
            self.admission.admit(sequence)
        except RequestError as error:
            self._close(sequence, "refused", error)
            return False
        self.scheduler.add(sequence)
        return True

    def abort(self, sequence: Sequence) -> None:
        self._end(sequence, "aborted")

    def has_work(self) -> bool:
        return bool(self.scheduler.running or len(self.order))

    def step(self) -> dict[Sequence, Chunk]:
        """One step of the engine: schedule, let the time pass, take in the tokens. What it processed."""
        refused = self.admission.recheck()
        for sequence, error in refused:
            self._end(sequence, "refused", error)
        plan = self.scheduler.schedule()
        for sequence, error in plan.failed:
            self._end(sequence, "refused", error)
        if not plan.chunks:
            self.clock.now += _IDLE_STEP_S
            return plan.chunks
        self.steps += 1
        applied = self._apply_mode(plan)
        duration = self.times.seconds(plan.chunks.values(), self._merged)
        if applied.switched and applied.merged:
            self.merges += 1
            duration += self.times.merge
        self.mode.ran(applied, plan.work, duration)
        self.forecast.launched(plan.work)
        self.forecast.measured(plan.work, duration)
        self.clock.now += duration
        self.busy_s += duration
        for chunk in plan.chunks.values():
            self._commit(chunk)
        return plan.chunks

    def run(self, arrivals: Iterable[tuple[float, GenerationRequest]], until: float = float("inf")) -> list[Ended]:
        """Play timed arrivals until all have ended or the clock passes ``until``; everything that ended so far."""
        queue = deque(arrivals)
        while (queue or self.has_work()) and self.clock.now < until:
            if not self.has_work() and queue:
                self.clock.now = max(self.clock.now, queue[0][0])
            while queue and queue[0][0] <= self.clock.now:
                at, request = queue.popleft()
                self.submit(request, at)
            if self.has_work():
                self.step()
        return self.ended

    def _apply_mode(self, plan: StepPlan) -> Applied:
        batch = Batch.of(plan.chunks.values())
        before = self._merged.digest if self._merged else UNMERGED
        wanted = self.mode.choose(batch, before)
        if wanted != before:
            if self._merged is not None:
                self.device_tier.release_merged(self._merged)
            self._merged = self.device_tier.get(wanted) if wanted else None
            if self._merged is not None:
                self.device_tier.acquire_merged(self._merged)
        now, rank = (self._merged.digest, self._merged.rank) if self._merged else (UNMERGED, 0)
        return Applied(now, batch.lora(now, rank), switched=now != before)

    def _commit(self, chunk: Chunk) -> None:
        sequence, samples = chunk.sequence, chunk.samples
        sequence.advance(chunk.tokens)
        if not samples:
            return
        if chunk.tokens > 1:
            self.scheduler.remember_prefix(sequence)
        sequence.resolve(1)
        sequence.parent.usage.completion_tokens += 1
        timeline = sequence.parent.timeline
        if timeline.first_token is None:
            timeline.first_token = self.clock.now
            self.forecast.first_token(sequence.parent, self.clock.now - timeline.submitted)
        if sequence.ends_by_length:
            self._end(sequence, "finished")
            self.forecast.finished(sequence)

    def _end(self, sequence: Sequence, outcome: str, error: RequestError | None = None) -> None:
        if sequence.state is State.FINISHED:
            return
        self.scheduler.finish(sequence)
        self._close(sequence, outcome, error)

    def _close(self, sequence: Sequence, outcome: str, error: RequestError | None) -> None:
        state = sequence.parent
        state.usage.outcome = outcome
        self.ended.append(
            Ended(
                state.request,
                outcome,
                state.timeline.submitted,
                state.timeline.first_token,
                self.clock.now,
                state.usage,
                state.predicted_first_token,
                error,
            )
        )


_SHAPES = dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"), (1, 1))
