"""The slots in which recurrent layers keep the inputs of drafts (``model/draft_inputs.py``)."""

from __future__ import annotations

from .sequence import Sequence


class DraftSlots:
    """A fixed number of slots, each with room for some drafts of a step.

    A sequence has one from its first drafts until it stops running. So there is always a free one if drafts are made
    beside no more running sequences than there are slots.
    """

    def __init__(self, count: int, drafts: int) -> None:
        """Create ``count`` slots for ``drafts`` drafts each."""
        self._free = [*range(count)]
        self._drafts = drafts

    def fitting(self, sequence: Sequence, drafts: int) -> int:
        """Return how many of ``drafts`` the sequence may have, and give it a slot for them."""
        if drafts and sequence.draft_slot is None:
            if not self._free:
                return 0
            sequence.draft_slot = self._free.pop()
        return min(drafts, self._drafts)

    def release(self, sequence: Sequence) -> None:
        """Free the slot of a sequence that stops running; it may have none."""
        if sequence.draft_slot is not None:
            self._free.append(sequence.draft_slot)
            sequence.draft_slot = None
