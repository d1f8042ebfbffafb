"""The base's projections one by one, for adapters whose kind needs to know what they change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import torch

from lora_engine.adapters.device_tier import group_offsets
from lora_engine.adapters.layout import TARGET_GROUPS
from lora_kernels.fp8_tensors import Fp8Matrix, rows_of

from .weights import MATRICES, Matrix, ModelWeights

_ROWS = 512  # made float32 at a time; a multiple of a block of FP8 scales


class BaseModules:
    """Reads the weights that the engine serves; those in FP8 as they are dequantised. For any thread."""

    def __init__(self, weights: ModelWeights, targets: dict[str, tuple[int, int]], *, aside: bool = True) -> None:
        """``aside``: with a stream of its own; not for callers that are on another one than the steps already."""
        self._layers = weights.layers
        self._offsets = group_offsets(targets)
        self._outs = {target: out for target, (_, out) in targets.items()}
        device = weights.embedding.device
        self._stream = torch.cuda.Stream(device) if aside and device.type == "cuda" else None

    def rows(self, layer: int, target: str) -> Iterator[torch.Tensor]:
        matrix: Matrix = getattr(self._layers[layer], _block(target))
        first = self._offsets[target]
        last = first + self._outs[target]
        for start in range(first, last, _ROWS):
            yield _float_rows(matrix, start, min(start + _ROWS, last))

    def bias(self, layer: int, target: str) -> torch.Tensor | None:
        bias: torch.Tensor | None = getattr(self._layers[layer], f"{_block(target)}_bias")
        first = self._offsets[target]
        return None if bias is None else bias[first : first + self._outs[target]].float().cpu()

    def aside(self) -> AbstractContextManager[object]:
        """On a stream of its own: the steps' would have it wait for them, and them for it."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)


def _block(target: str) -> str:
    return MATRICES[next(index for index, group in enumerate(TARGET_GROUPS) if target in group)]


def _float_rows(matrix: Matrix, start: int, stop: int) -> torch.Tensor:
    if not isinstance(matrix, Fp8Matrix):
        return matrix[start:stop].float()
    rows = rows_of(matrix, start, stop)
    assert rows is not None, "modules of matrices in blocks begin with a block"
    return rows.dequantised(torch.float32)
