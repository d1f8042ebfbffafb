"""A simulation of the engine's scheduling: the real ``SchedulingCore`` with a virtual clock, without a model.

A model of step times replaces the device, so that hours of traffic can be replayed with any settings in minutes, on one
core, with reproducible results. All policies are the engine's.
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
from .errors import RequestError
from .memory import PagePool, PoolGeometry
from .request import GenerationRequest, RequestUsage
from .scheduling.core import SchedulingCore
from .scheduling.sequence import Chunk, RequestState, Sequence
from .text import IncrementalDetokenizer

# Seconds of the virtual clock between steps while nothing runs and an adapter is being loaded.
_IDLE_STEP_S = 0.001


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The model of step times in seconds: a constant, plus terms for each sequence, token and unit of rank."""

    step: float
    sequence: float = 0.0
    prompt_token: float = 0.0
    context_token: float = 0.0
    rank: float = 0.0  # for each token and unit of its adapter's rank
    distinct_rank: float = 0.0  # for each distinct adapter and unit of its rank
    lora: float = 0.0  # once, if LoRA kernels run
    merge: float = 0.0  # once, if an adapter is merged before the step

    def seconds(self, chunks: Iterable[Chunk], merged: AdapterSlot | None = None) -> float:
        """Return the time of a step; tokens of the merged adapter need no delta, all others also subtract it."""
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
    """An adapter with its size in the pool and its tier at the start."""

    digest: str
    rank: int
    pages: int
    on_disk: bool = False


@dataclass(frozen=True, slots=True)
class SimulatedEnd:
    """The end of a simulated request; times are in seconds of the virtual clock."""

    request: GenerationRequest
    outcome: str  # "finished" | "refused"
    submitted: float
    first_token: float | None
    ended: float
    usage: RequestUsage
    predicted_first_token: float | None = None
    error: RequestError | None = None


class Clock:
    """A virtual clock in seconds, which advances only explicitly."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class TimedCopies:
    """The simulated copies to the device, one after another, each with a duration by its pages."""

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

    def mark(self) -> None:
        """Return None: the simulated device reads no host memory."""


@dataclass(slots=True)
class TimedArrival:
    clock: Clock
    at: float
    duration: float

    def done(self) -> bool:
        return self.clock.now >= self.at

    def join(self) -> None:
        """Advance the clock to the end of the copy, since the device waits for it."""
        self.clock.now = max(self.clock.now, self.at)

    def seconds(self) -> float:
        return self.duration


class TimedSource:
    """A simulated source of adapters in host memory, and on a disk that takes ``disk_s`` seconds for each."""

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

    def has(self, packed: PackedAdapter) -> bool:
        return True

    def request_load(self, digest: str) -> None:
        if self._here_at[digest] == float("inf"):
            self._here_at[digest] = self._clock.now + self._disk_s

    def load_error(self, digest: str) -> RequestError | None:
        return None


class SimulatedWeights:
    """The simulated second set of weights; ``StepTimes`` has the cost of a merge."""

    def harmless(self, slot: AdapterSlot) -> bool:
        return True

    def merge(self, slot: AdapterSlot) -> None:
        """Do nothing: there are no weights."""


class _NoText(IncrementalDetokenizer):
    """A detokenizer that returns no text."""

    def __init__(self) -> None: ...

    def append(self, token_id: int) -> str:
        return ""


# Token id of every generated token.
_TOKEN = 1
_PAGE_TOKENS = 16
_GEOMETRY_ELEMS = 2 * _PAGE_TOKENS


@dataclass(slots=True)
class Machine:
    """The simulated machine: its pool, its adapters and its speed."""

    times: StepTimes
    pages: int
    adapters: list[SimulatedAdapter] = field(default_factory=list)
    copy_page_s: float = 0.0  # from host memory to the device, for each page
    disk_s: float = 0.0  # from disk to host memory, for each adapter


class SimulatedEngine:
    """A simulated engine on a virtual clock; requests must be submitted in order of arrival."""

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
        self.ended: list[SimulatedEnd] = []
        self.steps = 0

    def submit(self, request: GenerationRequest, at: float | None = None) -> bool:
        """Queue a request that arrived at ``at`` (by default now); returns False if it was refused."""
        request_state = RequestState(request, self.clock.now if at is None else at)
        try:
            self.core.add(request_state, request.sampling.max_tokens, _NoText)
        except RequestError as error:
            request_state.usage.outcome = "refused"
            self._report_end(request_state, error)
            return False
        return True

    def abort(self, sequence: Sequence) -> None:
        self.core.end(sequence.request_state, "aborted")

    def has_work(self) -> bool:
        return bool(self.core.scheduler.running or len(self.core.queue))

    def step(self) -> dict[Sequence, Chunk]:
        """Run one step: schedule, advance the clock, commit the tokens; returns the processed chunks."""
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
        """Commit the oldest pending token of each of these sequences."""
        for sequence in sampling:
            self.core.token_arrived(sequence, _TOKEN, self.clock.now)
            if sequence.ends_by_length:
                self.core.finish(sequence)

    def run(
        self, arrivals: Iterable[tuple[float, GenerationRequest]], until: float = float("inf")
    ) -> list[SimulatedEnd]:
        """Replay timed arrivals until all have ended or the clock passes ``until``; returns all ends so far."""
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

    def _report_end(self, request_state: RequestState, error: RequestError | None) -> None:
        self.ended.append(
            SimulatedEnd(
                request_state.request,
                request_state.usage.outcome,
                request_state.submitted,
                request_state.first_token,
                self.clock.now,
                request_state.usage,
                request_state.predicted_first_token,
                error,
            )
        )


_SHAPES = dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"), (1, 1))
