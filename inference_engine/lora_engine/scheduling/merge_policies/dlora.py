"""dLoRA's policy has thresholds on the dominant adapter's share (Wu et al., OSDI 2024, algorithm 1)."""

from __future__ import annotations

from lora_engine.scheduling.step_cost import Work

from .base import UNMERGED, Applied, Batch, merge_policies


@merge_policies.register("dlora")
class DLoraThresholds:
    """A policy that merges an adapter used by the whole batch, until its share falls below a threshold.

    Both thresholds are tuned at each switch back: if tokens per second, including switches, were higher merged than
    unmerged before, merging begins earlier and lasts longer; otherwise the opposite. dLoRA's credits protect requests
    that a merged batch excludes; here no request is excluded.
    """

    name = "dlora"

    ENTER, LEAVE = 1.0, 15 / 27  # shares of the batch, as published
    STEP, FACTOR = 0.05, 1.1

    def __init__(self) -> None:
        self.enter, self.leave = self.ENTER, self.LEAVE
        self._merged = False
        self._rates = {False: _Rate(), True: _Rate()}

    def choose(self, batch: Batch, merged: str) -> str:
        wanted = self._wanted(batch, merged)
        if merged and wanted != merged:
            self._tune()
        if bool(wanted) != self._merged:
            self._merged = bool(wanted)
            self._rates[self._merged] = _Rate()
        return wanted

    def ran(self, applied: Applied, work: Work, seconds: float) -> None:
        self._rates[bool(applied.merged)].add(work.decoding + work.prompt_tokens, seconds)

    def _wanted(self, batch: Batch, merged: str) -> str:
        if merged and batch.share(merged) >= self.leave:
            return merged
        candidate = batch.dominant()
        return candidate if candidate and batch.share(candidate) >= self.enter else UNMERGED

    def _tune(self) -> None:
        merged, unmerged = self._rates[True].per_second, self._rates[False].per_second
        if not merged or not unmerged:
            return
        if merged > unmerged:
            self.enter = max(self.leave, self.enter - self.STEP)
            self.leave = max(0.1, self.leave / self.FACTOR)
        else:
            self.enter = min(1.0, self.enter * self.FACTOR)
            self.leave = min(self.enter, self.leave + self.STEP)


class _Rate:
    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0

    def add(self, tokens: float, seconds: float) -> None:
        self._tokens += tokens
        self._seconds += seconds

    @property
    def per_second(self) -> float:
        return self._tokens / self._seconds if self._seconds else 0.0
