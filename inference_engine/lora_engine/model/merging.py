"""A second set of the base model's matrices, with one adapter merged in.

The base set is only read: a merge writes ``W + scale * B^T A`` from it, rounded once, and the next
merge starts from it again. Adding and subtracting in place, as dLoRA's published code does, drifts in 16 bits.

Rows of other requests subtract the merged adapter again (dLoRA's delta correction), ``x (W + D) - x D``. That gives
``x W`` only as long as ``D`` is of ``W``'s size or smaller: what ``W`` loses in the sum to a larger one does not come
back. So such an adapter is not merged (``harmless``), else one tenant could change the others' answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from lora_engine.adapters.device_tier import AdapterSlot, GroupWeights

from .lora_exchange import LoraExchange
from .shape import DOWN, GATE_UP, OUT, QKV
from .weights import Layers

_LARGEST_INNER = 16.0  # times the base's longest row: how long a row of A may be, which others multiply with
_MATRICES = {QKV: "qkv", OUT: "o", GATE_UP: "gate_up", DOWN: "down"}


class MergedLayers:
    """Layers that share everything with the base's but the matrices that LoRA changes."""

    def __init__(self, base: Layers, exchange: LoraExchange | None = None) -> None:
        """``exchange``: with the ranks that both factors of adapters are split over, all of which merge at once."""
        self.layers = [
            replace(layer, **{name: getattr(layer, name).clone() for name in _MATRICES.values()}) for layer in base
        ]
        self._base = base
        self._exchange = exchange
        self._changed: set[tuple[int, int]] = set()  # (layer, group) that differ from the base

    @torch.inference_mode()
    def harmless(self, slot: AdapterSlot) -> bool:
        """Whether others notice no more than rounding of the adapter's being merged. Waits for the device.

        No element of what it adds, nor of any single rank of it, may exceed the largest of the matrix; and what others
        compute to subtract it must stay in range. Overwrites the layers: follow with ``merge`` of any adapter.
        """
        worst = []
        for index, layer in enumerate(self.layers):
            for group, name in _MATRICES.items():
                weights = slot.group(index, group)
                if weights is None:
                    continue
                self._changed.add((index, group))
                scratch, base = getattr(layer, name), getattr(self._base[index], name)
                for a, b, rows, scale in self._factors(group, weights):
                    worst += _sizes(a, b, scale, base[rows], scratch[rows])
        return not worst or bool(torch.stack(worst).amax() <= 1)  # False for NaN

    @torch.inference_mode()
    def merge(self, slot: AdapterSlot) -> None:
        """Have the layers be the base plus this adapter; launched in the order of the current stream."""
        before, self._changed = self._changed, set()
        for index, layer in enumerate(self.layers):
            for group, name in _MATRICES.items():
                merged, base = getattr(layer, name), getattr(self._base[index], name)
                weights = slot.group(index, group)
                if weights is None:
                    if (index, group) in before:
                        merged.copy_(base)
                    continue
                self._changed.add((index, group))
                written = 0
                for a, b, rows, scale in self._factors(group, weights):
                    merged[written : rows.start].copy_(base[written : rows.start])
                    torch.addmm(base[rows], b.t(), a, alpha=scale, out=merged[rows])
                    written = rows.stop
                merged[written:].copy_(base[written:])

    def _factors(self, group: int, weights: GroupWeights) -> Iterator[tuple[torch.Tensor, torch.Tensor, slice, float]]:
        """Of each target A ``[rank, in]``, B ``[rank, out]``, the rows of the matrix that it changes, and the scale."""
        if self._exchange is not None:
            whole = self._exchange.whole(group, weights)
        else:
            whole = [(weights.a_t[:, t.rank_start : t.rank_stop].t(), t.b) for t in weights.targets]
        for target, (a, b) in zip(weights.targets, whole, strict=True):
            yield a, b, slice(target.out_start, target.out_start + b.shape[1]), target.scale


def _sizes(
    a: torch.Tensor, b: torch.Tensor, scale: float, base: torch.Tensor, scratch: torch.Tensor
) -> list[torch.Tensor]:
    """How large an adapter's module is beside what it is merged into: more than 1 is too large."""
    largest, longest = _largest(base), _longest(base)
    added = abs(scale) * _largest(torch.mm(b.t(), a, out=scratch))
    by_rank = abs(scale) * (_largest(a, dim=1) * _largest(b, dim=1)).amax()
    return [added / largest, by_rank / largest, _longest(a) / (_LARGEST_INNER * longest)]


def _largest(matrix: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    norm: torch.Tensor = torch.linalg.vector_norm(matrix, torch.inf, dim=dim, dtype=torch.float32)
    return norm


def _longest(matrix: torch.Tensor) -> torch.Tensor:
    norms: torch.Tensor = torch.linalg.vector_norm(matrix, dim=1, dtype=torch.float32)
    return norms.amax()
