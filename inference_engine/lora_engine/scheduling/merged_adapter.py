"""The merged adapter is added to a second set of the base weights, as the merge policy chooses."""

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
    """A second set of the base weights."""

    def harmless(self, slot: AdapterSlot) -> bool:
        """Return whether merging this adapter would change other requests' output by no more than rounding."""

    def merge(self, slot: AdapterSlot) -> None:
        """Set the weights to the base weights plus this adapter."""


class MergedAdapter:
    """The adapter that is merged, if any. It keeps a reference on the device, like a request, while it is merged."""

    def __init__(self, policy: MergePolicy, device_tier: DeviceTier, weights: MergeableWeights | None) -> None:
        """Create the state without a merge. If ``weights`` is None nothing is ever merged, and the policy
        is not used.
        """
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
    def idle(self) -> bool:
        """True if an adapter is merged that no request uses."""
        return self.slot is not None and self.slot.refs == 1

    @property
    def report(self) -> MergeReport:
        return MergeReport(self.digest, self._merges, self._merged_steps)

    def choose(self, chunks: Iterable[Chunk]) -> Applied | None:
        """Merge the policy's choice for a step of these chunks; None if nothing can be merged."""
        if self._weights is None:
            return None
        batch, before = Batch.of(chunks), self.digest
        self._change(self._policy.choose(batch, before), self._weights)
        self._merged_steps += self.slot is not None
        rank = self.slot.rank if self.slot else 0
        return Applied(self.digest, batch.lora(self.digest, rank), switched=self.digest != before)

    def ran(self, applied: Applied | None, work: Work, seconds: float) -> None:
        """Report to the policy that the step of the last ``choose`` took ``seconds``."""
        if applied is not None:
            self._policy.ran(applied, work, seconds)

    def release(self) -> None:
        """Run on the base weights from the next step on."""
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
    """Check once per load of an adapter to the device whether it may be merged; batches carry the result to
    policies.
    """
    if slot.mergeable is None:
        slot.mergeable = weights.harmless(slot)
        if not slot.mergeable:
            log.info("adapter %s is not merged: rounding would change other requests' output", slot.digest)
    return slot.mergeable
