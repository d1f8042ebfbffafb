"""The adapter that is merged into a second set of the base's weights, as a merge policy chooses it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from lora_engine.adapters.device_tier import AdapterSlot, DeviceTier

from .merge_policies import UNMERGED, Applied, Batch, MergePolicy, MergeReport
from .sequence import Chunk
from .step_cost import Work

log = logging.getLogger(__name__)


class MergeableWeights(Protocol):
    """A second set of the base's weights."""

    def harmless(self, slot: AdapterSlot) -> bool:
        """Whether other requests would notice no more than rounding of this adapter's being merged."""

    def merge(self, slot: AdapterSlot) -> None:
        """Make them the base's weights plus this adapter."""


class MergedAdapter:
    """At most one adapter; it is held on the device, as by a request, for as long as it is merged."""

    def __init__(self, policy: MergePolicy, device_tier: DeviceTier, weights: MergeableWeights | None) -> None:
        """Without ``weights`` nothing is ever merged, and the policy is not asked."""
        self.slot: AdapterSlot | None = None
        self._policy = policy
        self._device_tier = device_tier
        self._weights = weights
        self._merges = 0
        self._merged_steps = 0

    @property
    def digest(self) -> str:
        return self.slot.digest if self.slot else UNMERGED

    @property
    def report(self) -> MergeReport:
        return MergeReport(self.digest, self._merges, self._merged_steps)

    def choose(self, chunks: Iterable[Chunk]) -> Applied | None:
        """Merge what the policy wants for a step of these chunks; None if nothing can be merged."""
        if self._weights is None:
            return None
        batch, before = Batch.of(chunks), self.digest
        self._change(self._policy.choose(batch, before), self._weights)
        self._merged_steps += self.slot is not None
        rank = self.slot.rank if self.slot else 0
        return Applied(self.digest, batch.lora(self.digest, rank), switched=self.digest != before)

    def ran(self, applied: Applied | None, work: Work, seconds: float) -> None:
        """The step that ``choose`` was asked for took ``seconds``."""
        if applied is not None:
            self._policy.ran(applied, work, seconds)

    def release(self) -> None:
        """Run on the base's own weights from the next step on."""
        if self.slot is not None:
            self._device_tier.release_merged(self.slot)
            self.slot = None

    def _change(self, digest: str, weights: MergeableWeights) -> None:
        if digest == self.digest:
            return
        self.release()
        slot = self._device_tier.get(digest) if digest else None
        if slot is not None and _may_merge(slot, weights):
            self._device_tier.acquire_merged(slot)
            weights.merge(slot)
            self.slot = slot
            self._merges += 1


def _may_merge(slot: AdapterSlot, weights: MergeableWeights) -> bool:
    """Asked once for each stay of an adapter on the device; policies see the answer in their batches."""
    if slot.mergeable is None:
        slot.mergeable = weights.harmless(slot)
        if not slot.mergeable:
            log.info("adapter %s is too large to be merged without others noticing", slot.digest)
    return slot.mergeable
