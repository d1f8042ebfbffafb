"""The forecast predicts when a waiting request gets its first token: queue, adapter load and prefill."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np

from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.text import IncrementalDetokenizer

from .prefill_budget import PrefillBudget
from .queue_policies import ClassedQueue
from .sequence import RequestState, Sequence
from .step_cost import StepCost, Work

_NEW = 0.05  # weight of the newest request in a tenant's estimate
# Weight of the newest load in the estimate of a load from disk.
_NEW_LOAD = 0.2
# Number of latest requests whose prediction errors are kept.
_ERRORS = 1024
# Output tokens of the hypothetical request of a newcomer.
_NEWCOMER_TOKENS = 64


@dataclass(slots=True)
class OutputLengthEstimate:
    """The share of ``max_tokens`` that a tenant's requests usually generate."""

    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The relative errors of predicted first-token times over the latest requests: median and 90th percentile."""

    requests: int
    median: float
    p90: float


@dataclass(frozen=True, slots=True)
class FreeCapacity:
    """The sequences and tokens for which the batch has room now."""

    slots: int  # sequences
    tokens: int  # of KV cache, if everything idle were evicted


class Forecast:
    """A model of the batch from step to step, which predicts without reading every waiting request.

    Sequences are expected to end after the share of ``max_tokens`` that is usual for their tenant. Waiting sequences
    take the places of those that end, in the queue policy's order.
    """

    def __init__(
        self,
        queue: ClassedQueue,
        free_capacity: Callable[[], FreeCapacity],
        host_load_s: Callable[[str], float | None],
        step_tokens: int,
        cost: StepCost,
        prefill_budget: PrefillBudget,
    ) -> None:
        """Create the forecast. ``host_load_s``: seconds to copy an adapter from host memory, 0 on the device, None on
        disk.
        """
        self.cost = cost
        self.disk_load_s = 0.5
        self._queue = queue
        self._free_capacity = free_capacity
        self._host_load_s = host_load_s
        self._step_tokens = step_tokens
        self._prefill_budget = prefill_budget
        self._steps = 0
        self._ends: list[tuple[int, int]] = []  # expected last step of each running sequence, and its arrival
        self._end_of: dict[Sequence, int] = {}
        self._prompts_per_step = 0.0
        self._context = 0  # cached tokens that the last step read
        self._waiting: dict[Sequence, float] = {}  # expected output tokens
        self.waiting_of_tenant = Counter[str]()  # sequences in the queue
        self._waiting_output = 0.0
        self._waiting_tokens = 0
        self._output_of_tenant: dict[str, OutputLengthEstimate] = {}
        self._errors: deque[float] = deque(maxlen=_ERRORS)

    def __contains__(self, sequence: Sequence) -> bool:
        """Return whether the sequence is in the queue."""
        return sequence in self._waiting

    def waiting(self) -> Iterator[Sequence]:
        """Return the sequences in the queue, in the order in which they entered it."""
        return iter(self._waiting)

    # Events of sequences.

    def queued(self, sequence: Sequence) -> None:
        output = self._expected_output(sequence)
        self._waiting[sequence] = output
        self.waiting_of_tenant[sequence.request.tenant] += 1
        self._waiting_output += output
        self._waiting_tokens += len(sequence.token_ids)

    def unqueued(self, sequence: Sequence) -> None:
        self._waiting_output -= self._waiting.pop(sequence)
        tenant = sequence.request.tenant
        self.waiting_of_tenant[tenant] -= 1
        if not self.waiting_of_tenant[tenant]:
            del self.waiting_of_tenant[tenant]
        self._waiting_tokens -= len(sequence.token_ids)

    def entered(self, sequence: Sequence) -> None:
        self.unqueued(sequence)
        end = self._steps + max(1, round(self._expected_output(sequence)))
        self._end_of[sequence] = end
        insort(self._ends, (end, sequence.arrival))

    def left(self, sequence: Sequence) -> None:
        end = self._end_of.pop(sequence)
        del self._ends[bisect_left(self._ends, (end, sequence.arrival))]

    def finished(self, sequence: Sequence) -> None:
        """Update the tenant's usual output length by a sequence that generated all its tokens."""
        estimate = self._output_of_tenant.setdefault(sequence.request.tenant, OutputLengthEstimate())
        estimate.share += _NEW * (sequence.num_output / sequence.max_tokens - estimate.share)

    def loaded_from_disk(self, seconds: float) -> None:
        self.disk_load_s += _NEW_LOAD * (seconds - self.disk_load_s)

    # Events of steps.

    def launched(self, work: Work) -> None:
        self._steps += 1
        self._context = int(work.context_tokens)
        self._prompts_per_step += _NEW * (work.prompt_tokens - self._prompts_per_step)

    def measured(self, work: Work, seconds: float) -> None:
        if seconds > 0:
            self.cost.observe(work, seconds)

    def first_token(self, request_state: RequestState, seconds: float) -> None:
        """Record that a request's first token came ``seconds`` after its submission."""
        if request_state.predicted_first_token is not None and seconds > 0:
            self._errors.append(abs(request_state.predicted_first_token - seconds) / seconds)

    @property
    def accuracy(self) -> Accuracy:
        if not self._errors:
            return Accuracy(0, 0.0, 0.0)
        median, p90 = np.quantile(np.array(self._errors), [0.5, 0.9])
        return Accuracy(len(self._errors), float(median), float(p90))

    # Predictions.

    def seconds_to_first_token(self, sequence: Sequence) -> float:
        """Return the seconds from now to the first token of a sequence that waits or is about to be queued."""
        ahead = self._queue.of(sequence).ahead_of(sequence)
        prompt = ahead.prompt_tokens + len(sequence.token_ids)
        running, fitting = len(self._ends), self._fitting(len(sequence.token_ids) + 1)
        decoding = min(running + max(0, fitting), running + ahead.sequences)
        lacking = 0 if ahead.preempts else ahead.sequences + 1 - max(0, fitting)
        released = self._steps_until_released(lacking)
        share = self._prefill_budget.expected_tokens(Work(decoding, 0, self._context), self._step_tokens - decoding)
        steps = max(released, prompt / max(1.0, share), 1.0)
        if not released:  # no wait: its step is shared with prompts that arrive at the same time
            prompt += self._prompts_per_step
        step = self.cost.seconds(Work(decoding, 0, self._context))
        wait = steps * step + prompt * self.cost.prompt_token
        return max(wait, self.load_seconds(sequence) + step)

    def seconds_for_newcomer(self, tenant: str) -> float:
        """Return the seconds to the first token of a one-token request without an adapter that the tenant sends now."""
        return self.seconds_to_first_token(_newcomer(tenant))

    def free_places(self, tenant: str) -> int:
        """Return how many sequences could run beside the running ones, those ahead of the tenant's newcomer, and it."""
        ahead = self._queue.foreground.ahead_of(_newcomer(tenant)).sequences
        return max(0, self._fitting(_NEWCOMER_TOKENS) - round(ahead) - 1)

    def place_seconds(self) -> float:
        """Return the seconds that each further request adds: places become free about evenly over one output."""
        running = len(self._ends)
        return self._mean_output() * self.cost.seconds(Work(running, 0, self._context)) / running if running else 0.0

    def load_seconds(self, sequence: Sequence) -> float:
        """Return the seconds until the adapter is on the device, if its load began now."""
        digest = sequence.request.adapter_digest
        if not digest:
            return 0.0
        from_host = self._host_load_s(digest)
        return self.disk_load_s if from_host is None else from_host

    def _steps_until_released(self, places: float) -> float:
        """Return the number of steps until ``places`` sequences have ended, including those that take freed places."""
        if places <= 0 or not self._ends:
            return 0.0
        rounds, index = divmod(int(places), len(self._ends))
        end = max(self._ends[index][0], self._steps + 1)
        return end - self._steps + rounds * self._mean_output()

    def _mean_output(self) -> float:
        return max(1.0, self._waiting_output / len(self._waiting)) if self._waiting else 64.0

    def _fitting(self, tokens: int) -> int:
        """Return how many sequences could run beside the running ones, of ``tokens`` each if none wait."""
        free, waiting = self._free_capacity(), len(self._waiting)
        return min(free.slots, int(free.tokens / (self._waiting_tokens / waiting if waiting else tokens)))

    def _expected_output(self, sequence: Sequence) -> float:
        estimate = self._output_of_tenant.get(sequence.request.tenant)
        share = estimate.share if estimate else 1.0
        return max(1.0, share * sequence.max_tokens - sequence.num_output)


def _newcomer(tenant: str) -> Sequence:
    request = GenerationRequest("", [0], SamplingParams(max_tokens=_NEWCOMER_TOKENS), tenant=tenant)
    request_state = RequestState(request, 0.0)
    no_text = cast(IncrementalDetokenizer, None)  # only generated tokens are detokenised
    return Sequence(request_state, 0, 0, [0], _NEWCOMER_TOKENS, no_text)
