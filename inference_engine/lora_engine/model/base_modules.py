"""Access to single projections of the base model, for kinds of adapters that are computed from them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch

from lora_engine.adapters import epilogue
from lora_engine.adapters.device_tier import group_offsets
from lora_engine.adapters.layout import COLUMN_PARALLEL, TARGET_GROUPS
from lora_engine.adapters.targets import DELTA_GATES
from lora_engine.config import EngineConfig
from lora_engine.errors import StageError, UnsupportedModel
from lora_kernels.fp8_tensors import Fp8Matrix, fits, quantise, rows_of

from .digests import files_state
from .loading import LoadedModel, quantises
from .stored_tensors import StoredModules
from .weights import GROUP_MATRICES, Matrix, ModelWeights

# Rows converted to float32 at a time; a multiple of a block of FP8 scales.
_ROWS = 512


def base_modules(config: EngineConfig, loaded: LoadedModel) -> epilogue.BaseModules:
    """Return the whole modules of the model that the engine serves, also where this rank holds only a part."""
    if loaded.targets.world == 1:
        return BaseModules(loaded.model.weights, loaded.targets.shapes)
    return SplitBaseModules(config, loaded)


class BaseModules:
    """The modules of the weights on the device, with FP8 dequantised. Any thread may use them."""

    def __init__(self, weights: ModelWeights, targets: dict[str, tuple[int, int]], *, aside: bool = True) -> None:
        """Use a separate stream if ``aside``; callers that already run on another stream than the steps need none."""
        self._layers = weights.layers
        self._offsets = group_offsets(targets)
        self._outs = {target: out for target, (_, out) in targets.items()}
        self._stream = _stream(weights.embedding.device) if aside else None

    def rows(self, layer: int, target: str) -> Iterator[torch.Tensor]:
        matrix, first = self._layers[layer].matrix_at(_group(target), self._offsets[target])
        last = first + self._outs[target]
        for start in range(first, last, _ROWS):
            rows = _slice(matrix, start, min(start + _ROWS, last))
            yield rows.dequantised(torch.float32) if isinstance(rows, Fp8Matrix) else rows.float()

    def is_quantised(self, layer: int, target: str) -> bool:
        return isinstance(self._layers[layer].matrix_at(_group(target), self._offsets[target])[0], Fp8Matrix)

    def bias(self, layer: int, target: str) -> torch.Tensor | None:
        weights = self._layers[layer]
        bias: torch.Tensor | None = getattr(weights, f"{GROUP_MATRICES[_group(target)]}_bias", None)
        first = self._offsets[target]
        return None if bias is None else bias[first : first + self._outs[target]].float().cpu()

    def aside(self) -> AbstractContextManager[object]:
        """Enter a separate stream: on the steps' stream both would wait for each other."""
        return _on(self._stream)


class SplitBaseModules:
    """The modules of a base model that is split over ranks: read again from its files, rounded as each rank's part is.

    No rank waits for another, and only some rows are on the device at a time. Any thread may use them. Methods raise
    ``StageError`` if the files have changed since the engine's start.
    """

    def __init__(self, config: EngineConfig, loaded: LoadedModel) -> None:
        self._folder, self._as_they_were = config.model, _contents(config.model)
        self._stored = StoredModules(config.model, loaded.model.config)
        self._targets = loaded.targets
        self._device, self._dtype = loaded.model.device, loaded.model.dtype
        self._quantised = quantises(config) and loaded.model.config.quantization is None
        self._stream = _stream(self._device)

    def rows(self, layer: int, target: str) -> Iterator[torch.Tensor]:
        with self._as_started():
            matrix = self._stored.matrix(layer, target)
        for start in range(0, matrix.shape[0], _ROWS):
            rows = _slice(matrix, start, min(start + _ROWS, matrix.shape[0]))
            if isinstance(rows, Fp8Matrix):
                yield rows.to(self._device).dequantised(torch.float32)
            else:
                yield self._as_served(rows.to(self._device, self._dtype), target)

    def is_quantised(self, layer: int, target: str) -> bool:
        with self._as_started():
            return isinstance(self._stored.matrix(layer, target), Fp8Matrix) or (self._quantised and self._fits(target))

    def bias(self, layer: int, target: str) -> torch.Tensor | None:
        with self._as_started():
            bias = self._stored.bias(layer, target)
        return None if bias is None else bias.to(self._dtype).float()

    def aside(self) -> AbstractContextManager[object]:
        return _on(self._stream)

    def _as_served(self, rows: torch.Tensor, target: str) -> torch.Tensor:
        if not (self._quantised and self._fits(target)):
            return rows.float()
        # Each rank has some columns of a row-parallel module, and so separate scales.
        parts = [rows] if target in COLUMN_PARALLEL else rows.chunk(self._targets.world, dim=1)
        return torch.cat([quantise(part).dequantised(torch.float32) for part in parts], dim=1)

    def _fits(self, target: str) -> bool:
        """Return whether a rank's part of the module was quantised to FP8."""
        if target in DELTA_GATES:  # never quantised
            return False
        others = [other for other in TARGET_GROUPS[_group(target)] if other not in DELTA_GATES]
        shapes = [self._targets.shapes[other] for other in others if other in self._targets.shapes]
        return fits(torch.empty(sum(out for _, out in shapes), shapes[0][0], device="meta"))

    @contextmanager
    def _as_started(self) -> Iterator[None]:
        """Guard reads of the files: raise ``StageError`` if they changed or cannot be read."""
        try:
            if _contents(self._folder) != self._as_they_were:
                raise _unreadable("the model's files have changed since the host was started")
            yield
        except OSError as error:
            raise _unreadable(f"the model's files can no longer be read ({error.strerror})") from None
        except UnsupportedModel as error:
            raise _unreadable(str(error)) from None


def _contents(folder: Path) -> list[tuple[object, ...]]:
    """Return the state of each file without its ``ctime``, which a new link or other permissions change too."""
    return [(name, size, written, *where) for name, size, written, _, *where in files_state(folder)]


def _unreadable(why: str) -> StageError:
    return StageError(
        "base_model_changed",
        f"The adapter's change of the base model cannot be computed: {why}.",
        "Have an operator restart the host, then stage the adapter again.",
        passes=True,
    )


def _group(target: str) -> int:
    return next(index for index, group in enumerate(TARGET_GROUPS) if target in group)


def _slice(matrix: Matrix, start: int, stop: int) -> Matrix:
    if not isinstance(matrix, Fp8Matrix):
        return matrix[start:stop]
    rows = rows_of(matrix, start, stop)
    assert rows is not None, "modules of matrices in blocks begin with a block"
    return rows


def _stream(device: torch.device) -> torch.cuda.Stream | None:
    return torch.cuda.Stream(device) if device.type == "cuda" else None


def _on(stream: torch.cuda.Stream | None) -> AbstractContextManager[object]:
    return nullcontext() if stream is None else torch.cuda.stream(stream)
