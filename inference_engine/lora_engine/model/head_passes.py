"""The passes of a draft head over many sequences, each launched kernel by kernel or as one CUDA graph.

After a step, a first pass runs the rows that are known now, and keeps each sequence's last output. A guess begins with
the likeliest token by that output, and each further draft is a pass that reads the one before on the device, without
the host. A pass of one layer has some forty small kernels, which a graph launches at once.

Graphs have a size, a number of sequences, and read fixed tensors, which the host fills. Sequences that are left are
padding: their rows have position -1, and their outputs go to a row that nothing reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from lora_engine.memory.pinned import to_device

from .draft_head import DECODE_ROWS, RING, DraftHead
from .graph_capture import capture


class KnownRows(NamedTuple):
    """Rows of a sequence: its slot, the position of the first one, its place in the hidden states, and the tokens that
    follow each row.
    """

    slot: int
    position: int
    place: int
    tokens: Sequence[int]


class HeadPasses:
    """A draft head, the last outputs of its slots, and the graphs of its passes."""

    def __init__(self, head: DraftHead, most: int, *, padded: bool = False) -> None:
        """Create the passes for up to ``most`` drafts. ``padded``: they have the sizes of graphs, also without."""
        self.head, self.most = head, most
        # Rows of a sequence in a first pass that all sequences share: a step has a row for each draft, and one more.
        self.rows = min(most + 1, DECODE_ROWS)
        self._padded = padded
        self._graphs: dict[tuple[str, int], torch.cuda.CUDAGraph] = {}
        slots, hidden, device = head.slots, head.hidden_size, head.device

        def numbers(*shape: int) -> torch.Tensor:
            return torch.zeros(*shape, dtype=torch.int64, device=device)

        def values(*shape: int) -> torch.Tensor:
            return torch.zeros(*shape, dtype=head.dtype, device=device)

        self._outputs = values(slots + 1, hidden)  # of each slot's last row; the last one is padding's
        self._known = numbers(slots * (2 + 2 * self.rows))
        self._states = values(slots * self.rows, len(head.feature_layers) * hidden)
        self._guessed = numbers(3, slots)  # slots, positions of the next rows, and tokens after these
        self._features = values(slots, hidden)
        self._drafts, self._at = numbers(most, slots), numbers(1)

    @torch.inference_mode()
    def capture(self) -> None:
        """Capture the graphs of all passes; the rings and outputs of all slots are empty before and after."""
        self._padded, memory = True, torch.cuda.graph_pool_handle()
        self._guessed[0], self._guessed[1], self._guessed[2] = self.head.slots, -1, 0
        for size in reversed(self.sizes):  # the largest first, whose memory the others use again
            self._known.zero_()  # only padding
            self._known[:size] = self.head.slots
            self._known[2 * size : (2 + self.rows) * size] = -1
            for kind in ("first", "begin", "further"):
                self._at.zero_()  # as a pass that begins: the one that is run here takes the first draft
                self._graphs[kind, size], _ = capture(self._pass(kind, size, RING), memory)
        self.head.rings.clear()

    @property
    def sizes(self) -> list[int]:
        """The numbers of sequences that graphs are for, in ascending order."""
        slots = self.head.slots
        return [*(1 << power for power in range(slots.bit_length()) if 1 << power < slots), slots]

    @torch.inference_mode()
    def follow(self, states: torch.Tensor, known: Sequence[KnownRows]) -> None:
        """Run known rows of each sequence, whose hidden states are rows of ``states [rows, layers * hidden]``."""
        most, reach = max(len(one.tokens) for one in known), max(one.position + len(one.tokens) for one in known)
        fits = self._padded and most <= self.rows
        size, width = (self._size(len(known)), self.rows) if fits else (len(known), most)
        numbers = to_device(torch.from_numpy(self._numbers(known, size, width)), self.head.device)
        inputs, places = numbers.split((len(numbers) - size * width, size * width))
        if not fits:
            self._first(inputs, states[places], size, reach)
            return
        self._known[: len(inputs)].copy_(inputs)
        torch.index_select(states, 0, places, out=self._states[: len(places)])
        self._launch("first", size, reach)

    @torch.inference_mode()
    def guess(self, slots: Sequence[int], positions: Sequence[int], count: int) -> torch.Tensor:
        """Return up to ``count`` drafts of each slot, whose next row has a position: ``[drafts, slots]``.

        They are on the device, until the next guess.
        """
        count = min(count, self.most)
        size = self._size(len(slots)) if self._padded else len(slots)
        lacking = size - len(slots)
        inputs = [*slots, *[self.head.slots] * lacking], [*positions, *[-1] * lacking]
        self._guessed[:2, :size].copy_(to_device(torch.tensor(inputs), self.head.device))
        self._launch("begin", size, 0)
        for _ in range(count - 1):
            self._launch("further", size, max(positions) + count - 1)
        return self._drafts[:count, : len(slots)]

    def _numbers(self, known: Sequence[KnownRows], size: int, width: int) -> npt.NDArray[np.int64]:
        """Return slots, last rows, positions, tokens and places, in a line; of padding where rows are lacking."""
        numbers, count = np.zeros(size * (2 + 3 * width), dtype=np.int64), len(known)
        slots, last = numbers[: 2 * size].reshape(2, size)
        positions, tokens, places = numbers[2 * size :].reshape(3, size, width)
        counts = np.array([len(one.tokens) for one in known])
        slots[:count], slots[count:] = [one.slot for one in known], self.head.slots
        last[:count] = counts - 1
        rows = np.arange(width)
        there = rows < counts[:, None]
        positions[:] = -1
        np.copyto(positions[:count], np.array([one.position for one in known])[:, None] + rows, where=there)
        np.copyto(places[:count], np.array([one.place for one in known])[:, None] + rows, where=there)
        tokens[:count][there] = [*chain.from_iterable(one.tokens for one in known)]
        return numbers

    def _size(self, count: int) -> int:
        return next(size for size in self.sizes if size >= count)

    def _launch(self, kind: str, size: int, reach: int) -> None:
        """Run a pass: as a graph if it is captured; ``reach`` is above all positions in rings, 0 if none are read."""
        if graph := self._graphs.get((kind, size)):
            graph.replay()
        else:
            self._pass(kind, size, reach)()

    def _pass(self, kind: str, size: int, reach: int) -> Callable[[], None]:
        """Return a pass on the fixed tensors."""
        if kind == "first":
            inputs, states = self._known[: size * (2 + 2 * self.rows)], self._states[: size * self.rows]
            return lambda: self._first(inputs, states, size, reach)
        return (lambda: self._begin(size)) if kind == "begin" else lambda: self._further(size, reach)

    def _first(self, inputs: torch.Tensor, states: torch.Tensor, size: int, reach: int) -> None:
        """Run rows and keep each sequence's last output; ``inputs``: slots, last rows, positions, tokens, in a line."""
        slots, last = inputs[: 2 * size].view(2, size)
        positions, tokens = inputs[2 * size :].view(2, size, -1)
        features = self.head.fuse(states).view(size, positions.shape[1], -1)
        outputs = self.head.run(self._rings_of(slots), tokens, features, positions, reach)
        self._outputs[slots] = outputs[torch.arange(size, device=self.head.device), last]

    def _begin(self, size: int) -> None:
        self._features[:size] = self._outputs[self._guessed[0, :size]]
        self._at.zero_()
        self._take(size)

    def _further(self, size: int, reach: int) -> None:
        slots, positions, tokens = self._guessed[:, :size]
        rows = tokens[:, None], self._features[:size, None], positions[:, None]
        self._features[:size] = self.head.run(self._rings_of(slots), *rows, reach)[:, 0]
        positions.add_(positions >= 0)
        self._take(size)

    def _take(self, size: int) -> None:
        """Take the likeliest tokens as the next drafts."""
        self._guessed[2, :size] = self.head.likeliest(self._features[:size])
        self._drafts.index_copy_(0, self._at, self._guessed[2:])
        self._at.add_(1)

    def _rings_of(self, slots: torch.Tensor) -> torch.Tensor:
        """Return the rings of slots: padding uses one of a sequence, in which it only writes the place of padding."""
        return slots.clamp(max=self.head.slots - 1)
