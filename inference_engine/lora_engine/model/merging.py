"""A second set of the base model's matrices, with one adapter merged in.

The base set is only read: a merge writes ``W + scale * B^T A`` from it, rounded once, and the next merge starts from it
again. Adding and subtracting in place, as dLoRA's published code does, accumulates rounding errors in 16 bits.

Rows of other requests subtract the merged adapter again (dLoRA's delta correction), ``x (W + D) - x D``. The result is
``x W`` only if ``D`` is no larger than ``W``: the sum with a larger ``D`` loses low bits of ``W`` for good. Such an
adapter is not merged (``harmless``); otherwise one tenant could change the answers of others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from lora_engine.adapters.device_tier import AdapterSlot, GroupWeights

from .lora_exchange import LoraExchange
from .weights import GROUP_MATRICES, MATRICES, Layers, LayerWeights

# Maximum length of a row of A, in lengths of the base's longest row: rows that subtract the adapter multiply by it.
_LARGEST_INNER = 16.0


class MergedLayers:
    """A copy of the base's layers that shares everything but the matrices that LoRA changes."""

    def __init__(self, base: Layers, exchange: LoraExchange | None = None) -> None:
        """Allocate the matrices; ``exchange`` is set where factors are split over ranks, which then merge together."""
        self.layers = [_copied(layer) for layer in base]
        self._base = base
        self._exchange = exchange
        self._changed: set[tuple[int, int]] = set()  # (layer, group) that differ from the base

    @torch.inference_mode()
    def harmless(self, slot: AdapterSlot) -> bool:
        """Return whether merging the adapter changes other rows by rounding only. Waits for the device.

        No element of its delta, nor of any single rank of the delta, may exceed the largest element of the matrix, and
        the intermediate results of the subtraction must stay in range. This overwrites the layers: call ``merge`` next.
        """
        worst = []
        for index, layer in enumerate(self.layers):
            for group in range(len(GROUP_MATRICES)):
                weights = slot.group(index, group)
                if weights is None:
                    continue
                self._changed.add((index, group))
                scratch, base = _plain(layer, group), _plain(self._base[index], group)
                for a, b, rows, scale in self._factors(group, weights):
                    worst += _sizes(a, b, scale, base[rows], scratch[rows])
        return not worst or bool(torch.stack(worst).amax() <= 1)  # False for NaN

    @torch.inference_mode()
    def merge(self, slot: AdapterSlot) -> None:
        """Set the layers to the base plus this adapter, in the order of the current stream."""
        before, self._changed = self._changed, set()
        for index, layer in enumerate(self.layers):
            for group in range(len(GROUP_MATRICES)):
                weights = slot.group(index, group)
                if weights is None:
                    if (index, group) in before:
                        _plain(layer, group).copy_(_plain(self._base[index], group))
                    continue
                merged, base = _plain(layer, group), _plain(self._base[index], group)
                self._changed.add((index, group))
                written = 0
                for a, b, rows, scale in self._factors(group, weights):
                    merged[written : rows.start].copy_(base[written : rows.start])
                    torch.addmm(base[rows], b.t(), a, alpha=scale, out=merged[rows])
                    written = rows.stop
                merged[written:].copy_(base[written:])

    def _factors(self, group: int, weights: GroupWeights) -> Iterator[tuple[torch.Tensor, torch.Tensor, slice, float]]:
        """Yield A ``[rank, in]``, B ``[rank, out]``, the matrix rows that they change, and the scale of each target."""
        if self._exchange is not None:
            whole = self._exchange.whole(group, weights)
        else:
            whole = [(weights.a_t[:, t.rank_start : t.rank_stop].t(), t.b) for t in weights.targets]
        for target, (a, b) in zip(weights.targets, whole, strict=True):
            yield a, b, slice(target.out_start, target.out_start + b.shape[1]), target.scale


def _copied(layer: LayerWeights) -> LayerWeights:
    """Return a layer with its own copies of the matrices that LoRA changes."""
    copies = {name: matrix.clone() for name in MATRICES if (matrix := getattr(layer, name)) is not None}
    experts = None if layer.experts is None else replace(layer.experts, router=layer.experts.router.clone())
    return replace(layer, **copies, experts=experts)


def _plain(layer: LayerWeights, group: int) -> torch.Tensor:
    """Return the matrix of a target group that an adapter changes; FP8 matrices are never merged."""
    matrix = layer.matrix(group)
    assert isinstance(matrix, torch.Tensor)
    return matrix


def _sizes(
    a: torch.Tensor, b: torch.Tensor, scale: float, base: torch.Tensor, scratch: torch.Tensor
) -> list[torch.Tensor]:
    """Return sizes of an adapter's module relative to the matrix that it is merged into; above 1 is too large."""
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
