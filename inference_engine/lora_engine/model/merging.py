"""A second set of the base model's matrices, with one adapter merged in.

The pristine set is only ever read: a merge writes ``W + scale * B^T A`` from it, rounded once, and the next
merge starts from it again. Adding and subtracting in place, as dLoRA's published code does, drifts in 16 bits.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from lora_engine.adapters.residency import AdapterSlot

from .shape import DOWN, GATE_UP, OUT, QKV
from .weights import LayerWeights

_MATRICES = {QKV: "qkv", OUT: "o", GATE_UP: "gate_up", DOWN: "down"}


class MergedLayers:
    """Layers that share everything with the pristine ones but the matrices that LoRA changes."""

    def __init__(self, pristine: list[LayerWeights]) -> None:
        self.layers = [
            replace(layer, **{name: getattr(layer, name).clone() for name in _MATRICES.values()}) for layer in pristine
        ]
        self._pristine = pristine
        self._changed: set[tuple[int, int]] = set()  # (layer, group) that differ from the pristine ones

    @torch.inference_mode()
    def merge(self, slot: AdapterSlot) -> None:
        """Have the layers be the base plus this adapter; launched in the order of the current stream."""
        before, self._changed = self._changed, set()
        for index, layer in enumerate(self.layers):
            for group, name in _MATRICES.items():
                merged, base = getattr(layer, name), getattr(self._pristine[index], name)
                weights = slot.group(index, group)
                if weights is None:
                    if (index, group) in before:
                        merged.copy_(base)
                    continue
                self._changed.add((index, group))
                written = 0
                for part in weights.parts:
                    rows = slice(part.out_start, part.out_stop)
                    merged[written : part.out_start].copy_(base[written : part.out_start])
                    a = weights.a_t[:, part.rank_start : part.rank_stop].t()
                    torch.addmm(base[rows], part.b.t(), a, alpha=part.scale, out=merged[rows])
                    written = part.out_stop
                merged[written:].copy_(base[written:])
