"""The auto policy merges an adapter once the time saved equals the time of a merge, as in ski rental."""

from __future__ import annotations

import numpy as np

from lora_engine.scheduling.step_cost import LinearCost, Work

from .base import UNMERGED, Applied, Batch, merge_policies

# share of a step, all of whose tokens have adapters, that deltas are assumed to cost before they are measured
_GUESS = 0.2
_TRIED = 64  # merged steps after which the measurement is used
_GUESSED_MERGE_STEPS = 2.0  # a merge in steps: it reads and writes all matrices, a step reads them
_NEW = 0.3  # weight of the newest merge in the average time of a merge
# Weight of the newest step in the average time of a step.
_NEW_STEP = 0.05
# Highest factor on the credit that a merge needs.
_WARIEST = 64.0
# Usual sizes of the features: constant, decoding sequences, prompt and context tokens, LoRA kernels or not, rank times
# tokens.
_SCALE = np.array([1.0, 64.0, 512.0, 65536.0, 1.0, 4096.0])
# Seconds assumed for each feature at its usual size.
_FIRST = np.array([5e-3, 1e-3, 1e-2, 1e-3, 0.0, 0.0])


@merge_policies.register("auto")
class AutoMerge:
    """A policy that adds to every alternative's credit the seconds by which it would have shortened each step.

    An adapter is merged once its credit covers the cost of a merge, and unmerged at half of that. A merge that ends
    before it has saved its cost doubles the credit that the next one needs; one that has saved it halves the credit. So
    where requests change too fast for merging, merging soon stops. The costs of LoRA kernels and merges are measured as
    steps run, merged and unmerged.
    """

    name = "auto"

    def __init__(self) -> None:
        self.merge_s: float | None = None  # seconds of a merge, once measured
        self.wariness = 1.0  # factor on a merge's cost that must have been saved in advance
        self._cost = LinearCost(_FIRST, _SCALE)
        self._step_s = 0.0  # seconds of a usual step
        self._merged_steps = 0
        self._brought = 0.0  # seconds that the current merge has saved
        self._ranks: dict[str, int] = {UNMERGED: 0}  # of the merged adapter and of alternatives with credit
        self._credit: dict[str, float] = {}

    def choose(self, batch: Batch, merged: str) -> str:
        if not self._cost.calibrated or not batch.total:
            return merged
        self._brought += self._saved_s(batch, UNMERGED, merged)
        candidate = batch.dominant()
        self._ranks.setdefault(candidate, batch.ranks[candidate])
        best, excess = merged, 0.0
        for alternative in dict.fromkeys((candidate, UNMERGED, *self._credit)):
            if alternative == merged or alternative in batch.unmergeable:
                continue
            saved = self._saved_s(batch, merged, alternative)
            credit = self._credit[alternative] = max(0.0, self._credit.get(alternative, 0.0) + saved)
            due = self._merging_s() * (self.wariness if alternative else 0.5)
            if saved > 0 and credit - due >= excess:
                best, excess = alternative, credit - due
        if best != merged:
            self._change(merged)
        self._drop_others(best)
        return best

    def _change(self, merged: str) -> None:
        if merged:
            paid = self._brought >= self._merging_s()
            self.wariness = max(1.0, self.wariness / 2) if paid else min(_WARIEST, self.wariness * 2)
        self._brought = 0.0
        self._credit.clear()

    def _drop_others(self, chosen: str) -> None:
        """Keep only alternatives with credit, and the chosen one."""
        self._credit = {digest: credit for digest, credit in self._credit.items() if credit}
        kept = {UNMERGED, chosen, *self._credit}
        self._ranks = {digest: rank for digest, rank in self._ranks.items() if digest in kept}

    def ran(self, applied: Applied, work: Work, seconds: float) -> None:
        features = (1.0, work.decoding, work.prompt_tokens, work.context_tokens, float(applied.lora > 0), applied.lora)
        if applied.switched and applied.merged:
            took = max(0.0, seconds - self._cost.predict(features))
            self.merge_s = took if self.merge_s is None else self.merge_s + _NEW * (took - self.merge_s)
            return
        self._merged_steps += bool(applied.merged)
        if seconds > 0:
            self._step_s += (_NEW_STEP if self._step_s else 1.0) * (seconds - self._step_s)
            self._cost.observe(features, seconds)

    def _saved_s(self, batch: Batch, merged: str, alternative: str) -> float:
        """Return the seconds by which the alternative would shorten this step."""
        now = batch.lora(merged, self._ranks[merged])
        then = batch.lora(alternative, self._ranks[alternative])
        if self._merged_steps >= _TRIED:
            fixed, per_unit = self._cost.rates[4:]
            return float(fixed * (bool(now) - bool(then)) + per_unit * (now - then))
        return _GUESS * self._step_s * (now - then) / max(now, then, 1)

    def _merging_s(self) -> float:
        return self.merge_s if self.merge_s is not None else _GUESSED_MERGE_STEPS * self._step_s
