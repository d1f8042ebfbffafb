"""The drafter of `--speculation eagle3` and `mtp`: a draft head that reads the hidden states of the adapted model.

After each step the head runs on the accepted rows of all sequences that draft, in one pass, and each further draft is
another pass (`model/head_passes.py`). The drafts stay on the device, where the next step reads them: the host plans and
launches that step while the passes run. Only where grammars or penalties need to know drafts does the host wait for
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Sequences

import torch

from lora_engine.execution.hidden_states import HiddenRows, HiddenStates
from lora_engine.execution.runner import DeviceDrafts
from lora_engine.model.draft_head import MAX_ROWS
from lora_engine.model.head_passes import HeadPasses, KnownRows
from lora_engine.scheduling.sequence import Sequence, State


class HeadDrafter:
    """A drafter with a ring of the head for each running sequence, while there are free ones."""

    is_free = False

    def __init__(self, passes: HeadPasses, device_drafts: Callable[[], DeviceDrafts | None] = lambda: None) -> None:
        """Create the drafter; ``device_drafts`` returns where drafts are left; None: the host reads all of them."""
        self._passes = passes
        self._device_drafts = device_drafts
        self._free = [*range(passes.head.slots)]
        self._slots: dict[Sequence, int] = {}
        self._next: dict[Sequence, int] = {}  # position of a sequence's next row

    @torch.inference_mode()
    def observe(self, states: HiddenStates, kept: Mapping[Sequence, int]) -> None:
        """Run the head on a step's accepted rows; ``kept``: numbers of tokens that sequences kept of it."""
        decoding, others = list[HiddenRows](), list[HiddenRows]()
        for part in states.parts:
            tokens = kept.get(part.sequence, 0)
            if part.sequence.state is not State.RUNNING or (part.samples and not tokens):
                continue
            rows = part.rows - part.drafts + tokens - 1 if part.samples else part.rows
            if rows > 0 and self._place(part):
                (decoding if rows <= self._passes.rows else others).append(part._replace(rows=rows))
        for parts in ([decoding] if decoding else []) + [[part] for part in others]:
            self._passes.follow(states.values, [self._known(part) for part in parts])

    def propose(self, sequences: Sequences[Sequence], most: Sequences[int]) -> list[list[int]]:
        """Return up to ``most`` tokens that may follow each sequence; none for one that the head has not followed.

        They may be references to tokens on the device (``DeviceDrafts``).
        """
        ready = [
            index
            for index, sequence in enumerate(sequences)
            if most[index] and self._next.get(sequence) == len(sequence.token_ids) - sequence.pending - 1
        ]
        guesses: list[list[int]] = [[] for _ in sequences]
        if ready:
            slots, nexts = zip(*((self._slots[sequences[i]], self._next[sequences[i]]) for i in ready), strict=True)
            drafts = self._passes.guess(slots, nexts, max(most[index] for index in ready))
            on_device = None if any(map(_needs_drafts, sequences)) else self._device_drafts()
            rows: list[list[int]] = drafts.t().tolist() if on_device is None else on_device.put(drafts)
            for index, row in zip(ready, rows, strict=True):
                guesses[index] = row[: most[index]]
        return guesses

    def forget(self, sequence: Sequence) -> None:
        """Free the ring of a sequence that stopped running."""
        if (slot := self._slots.pop(sequence, None)) is not None:
            self._free.append(slot)
            del self._next[sequence]

    def _place(self, part: HiddenRows) -> bool:
        """Give the sequence a ring, which is emptied if the rows do not follow those in it."""
        sequence = part.sequence
        if sequence not in self._slots:
            if not self._free:
                return False
            self._slots[sequence] = self._free.pop()
            self._next[sequence] = -1
        if self._next[sequence] != part.position:
            self._passes.head.clear(self._slots[sequence])
        return True

    def _known(self, part: HiddenRows) -> KnownRows:
        """Return the rows with the tokens after them, and count them as run."""
        assert part.rows <= MAX_ROWS, "a pass has at most so many rows of a sequence"
        sequence, at = part.sequence, part.position + 1
        self._next[sequence] = part.position + part.rows
        return KnownRows(self._slots[sequence], part.position, part.start, sequence.token_ids[at : at + part.rows])


def _needs_drafts(sequence: Sequence) -> bool:
    """Return whether the host needs to know a sequence's drafts before a step has them."""
    return sequence.masks is not None or sequence.request.sampling.penalises
