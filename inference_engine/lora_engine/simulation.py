"""The engine's scheduling without a model: the real ``SchedulingCore``, with a virtual clock.

Steps take what a step-time model says instead of what a device needs, so that hours of traffic can be played against
settings in minutes, on one core, with the same result every time. No policy is imitated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from .adapters.device_tier import AdapterSlot
from .adapters.layout import AdapterLayout, PackedAdapter
from .config import EngineConfig
from .memory import PagePool, PoolGeometry
from .request import GenerationRequest, RequestError, RequestUsage
from .scheduling.core import SchedulingCore
from .scheduling.sequence import Chunk, RequestState, Sequence
from .text import IncrementalDetokenizer

# Nothing runs and something is being loaded: how far the clock goes until the next step.
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
        """Tokens of a merged adapter cost no delta; all others cost their own and the merged one's subtraction."""
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


class SimulatedWeights:
    """A second set of weights: what merging takes is in ``StepTimes``."""

    def harmless(self, slot: AdapterSlot) -> bool:
        return True

    def merge(self, slot: AdapterSlot) -> None:
        """Nothing to write."""


class _NoText(IncrementalDetokenizer):
    """Tokens have no text here."""

    def __init__(self) -> None: ...

    def append(self, token_id: int) -> str:
        return ""


_TOKEN = 1  # every token that is generated
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
        copies = TimedCopies(self.clock, machine.copy_page_s)
        self.source = TimedSource(machine.adapters, self.clock, copies, machine.disk_s)
        self.core = SchedulingCore(
            self.config,
            self.source,
            PagePool(PoolGeometry(1, _PAGE_TOKENS, 1, 1), machine.pages, torch.float32, torch.device("cpu")),
            _SHAPES,
            clock=self.clock,
            copies=copies,
            on_end=self._report_end,
            merged_weights=SimulatedWeights() if self.config.merges else None,
        )
        self.ended: list[Ended] = []
        self.steps = 0

    def submit(self, request: GenerationRequest, at: float | None = None) -> bool:
        """Queue a request that came at ``at`` (now); False if it was refused."""
        submitted = self.clock.now if at is None else at
        usage = RequestUsage(request.request_id, request.tenant, request.adapter_digest)
        state = self.core.new_request(request, usage, request.sampling.max_tokens, submitted, detokenizer=_NoText)
        try:
            self.core.add(state)
        except RequestError as error:
            usage.outcome = "refused"
            self._report_end(state, error)
            return False
        return True

    def abort(self, sequence: Sequence) -> None:
        self.core.end(sequence.parent, "aborted")

    def has_work(self) -> bool:
        return bool(self.core.scheduler.running or len(self.core.queue))

    def step(self) -> dict[Sequence, Chunk]:
        """One step of the engine: schedule, let the time pass, take in the tokens. What it processed."""
        plan = self.core.schedule()
        if not plan.chunks:
            self.clock.now += _IDLE_STEP_S
            return plan.chunks
        self.steps += 1
        applied = self.core.choose_merged(plan)
        duration = self.times.seconds(plan.chunks.values(), self.core.merged.slot)
        if applied is not None and applied.switched and applied.merged:
            duration += self.times.merge
        sampling = [chunk.sequence for chunk in plan.chunks.values() if chunk.samples]
        self.core.launched(plan, applied)
        self.core.measured(duration)
        self.clock.now += duration
        self.take_tokens(sampling)
        return plan.chunks

    def take_tokens(self, sampling: Iterable[Sequence]) -> None:
        """The oldest pending token of each of these sequences has been generated."""
        for sequence in sampling:
            self.core.token_arrived(sequence, _TOKEN, self.clock.now)
            if sequence.ends_by_length:
                self.core.finish(sequence)

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

    def _report_end(self, state: RequestState, error: RequestError | None) -> None:
        self.ended.append(
            Ended(
                state.request,
                state.usage.outcome,
                state.timeline.submitted,
                state.timeline.first_token,
                self.clock.now,
                state.usage,
                state.predicted_first_token,
                error,
            )
        )


_SHAPES = dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"), (1, 1))
