"""The drafter of `--speculation eagle3` and `mtp`: a draft head that reads the hidden states of the adapted model.

After each step the head runs on the accepted rows of all sequences that draft, in one pass, and each further draft is
another pass. The tokens are read once, at the end: one wait for the device in a step, as for the step's own tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Sequences

import torch

from lora_engine.execution.hidden_states import HiddenRows, HiddenStates
from lora_engine.memory.pinned import to_device
from lora_engine.model.draft_head import DECODE_ROWS, MAX_ROWS, DraftHead
from lora_engine.scheduling.sequence import Sequence, State


class HeadDrafter:
    """A drafter with a ring of the head for each running sequence, while there are free ones."""

    is_free = False

    def __init__(self, head: DraftHead) -> None:
        self._head = head
        self._free = [*range(head.slots)]
        self._slots: dict[Sequence, int] = {}
        self._next: dict[Sequence, int] = {}  # position of a sequence's next row
        self._device = head.device
        self._outputs = torch.zeros(head.slots, head.hidden_size, device=head.device, dtype=head.dtype)  # of last rows

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
                (decoding if rows <= DECODE_ROWS else others).append(part._replace(rows=rows))
        for parts in ([decoding] if decoding else []) + [[part] for part in others]:
            self._run(states.values, parts)

    @torch.inference_mode()
    def propose(self, sequences: Sequences[Sequence], most: Sequences[int]) -> list[list[int]]:
        """Return up to ``most`` tokens that may follow each sequence; none for one that the head has not followed."""
        ready = [
            (index, self._slots[sequence])
            for index, sequence in enumerate(sequences)
            if most[index] and self._next.get(sequence) == len(sequence.token_ids) - sequence.pending - 1
        ]
        guesses: list[list[int]] = [[] for _ in sequences]
        if not ready:
            return guesses
        slots = self._tensor([slot for _, slot in ready])
        outputs = self._outputs[slots]
        tokens = [self._head.likeliest(outputs)]
        nexts = [self._next[sequences[index]] for index, _ in ready]
        positions, longest = self._tensor(nexts), max(nexts)
        for ahead in range(max(most[index] for index, _ in ready) - 1):
            at, longest = (positions + ahead)[:, None], longest + 1
            outputs = self._head.run(slots, tokens[-1][:, None], outputs[:, None], at, longest)[:, 0]
            tokens.append(self._head.likeliest(outputs))
        for (index, _), row in zip(ready, torch.stack(tokens, 1).tolist(), strict=True):
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
            self._head.clear(self._slots[sequence])
        return True

    def _run(self, values: torch.Tensor, parts: list[HiddenRows]) -> None:
        longest = max(part.rows for part in parts)
        assert longest <= MAX_ROWS, "a pass has at most so many rows of a sequence"
        indices, tokens, positions = [], [], []
        for part in parts:
            padding = [0] * (longest - part.rows)
            at = part.position + 1
            indices.append([*range(part.start, part.start + part.rows), *padding])
            tokens.append([*part.sequence.token_ids[at : at + part.rows], *padding])
            positions.append([*range(part.position, part.position + part.rows), *(-1 for _ in padding)])
            self._next[part.sequence] = part.position + part.rows
        slots = self._tensor([self._slots[part.sequence] for part in parts])
        features = self._head.fuse(values[self._tensor(indices)])
        reach = max(self._next[part.sequence] for part in parts)
        outputs = self._head.run(slots, self._tensor(tokens), features, self._tensor(positions), reach)
        last = self._tensor([part.rows - 1 for part in parts])
        self._outputs[slots] = outputs[torch.arange(len(parts), device=self._device), last]

    def _tensor(self, values: object) -> torch.Tensor:
        return to_device(torch.tensor(values), self._device)
