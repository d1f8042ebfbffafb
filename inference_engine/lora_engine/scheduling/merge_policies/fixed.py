"""The fixed merge policies do not learn."""

from __future__ import annotations

from lora_engine.scheduling.step_cost import Work

from .base import UNMERGED, Applied, Batch, merge_policies


@merge_policies.register("unmerged")
class Unmerged:
    """A policy that never merges: every adapter runs as its low-rank delta."""

    name = "unmerged"

    def choose(self, batch: Batch, merged: str) -> str:
        return UNMERGED

    def ran(self, applied: Applied, work: Work, seconds: float) -> None:
        pass


@merge_policies.register("merged")
class Merged:
    """A policy that merges the batch's most used adapter, and keeps it while any sequence of the batch uses it."""

    name = "merged"

    def choose(self, batch: Batch, merged: str) -> str:
        return merged if merged and merged in batch.tokens else batch.dominant()

    def ran(self, applied: Applied, work: Work, seconds: float) -> None:
        pass
