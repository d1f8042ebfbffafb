"""The tensors of a source on one rank's device: this rank's part of each, in the form that the layers use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from lora_kernels.fp8_tensors import Fp8Matrix, columns_of, concatenated, fits, quantise, rows_of

from .checkpoint import ScaleNames, Tensors
from .config import ModelConfig
from .parallel import Parallel
from .stored_tensors import read_module
from .tensor_shapes import target_of_weight
from .vocabulary import Vocabulary
from .weights import Matrix, laid_out


class RankTensors:
    """The tensors of ``source`` for one rank. Several threads may use it if they may use the source.

    ``quantised``: plain matrices are quantised to FP8, unless some are in FP8 already: those with names in ``in_fp8``.
    """

    def __init__(
        self,
        source: Tensors,
        config: ModelConfig,
        device: torch.device,
        dtype: torch.dtype,
        parallel: Parallel,
        quantised: bool = False,
        in_fp8: Mapping[str, ScaleNames] | None = None,
    ) -> None:
        self.source, self.config, self.parallel = source, config, parallel
        self.device, self.dtype = device, dtype
        self.quantised, self.in_fp8 = quantised and not in_fp8, in_fp8 or {}
        self.unquantised: list[str] = []  # matrices that FP8 products do not support

    def module(self, name: str, rows: slice | None = None) -> Matrix:
        """Return a module's whole weight as it is stored, or only some of its rows."""
        return read_module(self.source, self.config, self.in_fp8, name, rows)

    def plain(self, matrix: Matrix) -> torch.Tensor:
        return matrix.dequantised(self.dtype) if isinstance(matrix, Fp8Matrix) else matrix

    def place(self, name: str, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Put a tensor on the device with contiguous rows."""
        placed = tensor.to(device=self.device, dtype=dtype or self.dtype).contiguous()
        self.source.placed(name, placed)
        return placed

    def put(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Put a matrix on the device in the layout of products."""
        return laid_out(self.place(name, tensor))

    def matrix(self, name: str) -> torch.Tensor:
        return self.put(name, self.source.tensor(name))

    def in_float32(self, name: str) -> torch.Tensor:
        return self.place(name, self.source.tensor(name), torch.float32)

    def of_tokens(self, name: str) -> torch.Tensor:
        """Load this rank's rows of a matrix with one row for each token."""
        vocabulary = Vocabulary(self.config.vocab_size, self.parallel)
        stop = vocabulary.first + vocabulary.num_tokens
        return self.put(name, vocabulary.padded(self.source.rows(name, vocabulary.first, stop)))

    def norm(self, name: str) -> torch.Tensor:
        """Load a norm's weight, in float32 if it is multiplied in float32."""
        norm = self.config.family.norm
        weight = self.source.tensor(name).to(self.device)
        weight = weight.float() + norm.offset if norm.offset else weight
        return self.place(name, weight, self.dtype if norm.rounded_first else torch.float32)

    def columns(self, names: list[str]) -> Matrix:
        """Load a column-parallel matrix: this rank's output features of each module, concatenated."""
        parts: list[Matrix] = []
        targets, in_parts = self.config.target_shapes(), self.config.output_parts
        for name in names:
            target = target_of_weight(name)
            ranges = self._ranges(in_parts.get(target, targets[target][1:]))
            if self._needs_whole(name):
                whole = self.module(name)
                for start, stop in ranges:
                    part = rows_of(whole, start, stop) if isinstance(whole, Fp8Matrix) else None
                    parts.append(part or self.plain(whole)[start:stop])
            else:
                parts += [self.module(name, slice(*each)) for each in ranges]
        return self.joined(names, parts)

    def column_bias(self, names: list[str]) -> torch.Tensor:
        return self.put(names[0], torch.cat([self.rows_of_rank(self.source.tensor(name)) for name in names]))

    def row(self, name: str) -> Matrix:
        """Load a row-parallel matrix: this rank's input features."""
        whole = self.module(name)
        width = self.parallel.shard(whole.shape[1], target_of_weight(name))
        start, stop = self.parallel.rank * width, (self.parallel.rank + 1) * width
        part = columns_of(whole, start, stop) if isinstance(whole, Fp8Matrix) else None
        return self.joined([name], [part or self.plain(whole)[:, start:stop]])

    def row_bias(self, name: str) -> torch.Tensor | None:
        """Load the bias of a row-parallel matrix on one rank only: partial sums of all ranks are added up."""
        return self.place(name, self.source.tensor(name)) if self.parallel.rank == 0 else None

    def rows_of_rank(self, rows: torch.Tensor, parts: tuple[int, ...] = ()) -> torch.Tensor:
        """Return this rank's rows of each part of ``rows``; without ``parts``, all of them are one."""
        return torch.cat([rows[start:stop] for start, stop in self._ranges(parts or (len(rows),))])

    def joined(self, names: list[str], parts: list[Matrix]) -> Matrix:
        """Join parts to one matrix: in FP8 if they are, or are to be quantised, and FP8 products support it."""
        quantised = [part for part in parts if isinstance(part, Fp8Matrix)]
        matrix = concatenated(quantised) if len(quantised) == len(parts) else None
        if matrix is None and self.quantised:
            plain = torch.cat([self.plain(part).to(self.device, self.dtype) for part in parts])
            matrix = quantise(plain) if fits(plain) else None
        if matrix is not None and fits(matrix):
            placed = matrix.to(self.device)
            self.source.placed(names[0], placed)
            return placed
        if self.quantised or any(name in self.in_fp8 for name in names):
            self.unquantised.append(names[0])
        return self.put(names[0], torch.cat([self.plain(part) for part in parts]))

    def _needs_whole(self, name: str) -> bool:
        """Return whether some rows of a module depend on others in its file: by their order, or by scales of blocks."""
        quantization = self.config.quantization
        blocks = name in self.in_fp8 and quantization is not None and quantization.in_blocks
        return blocks or target_of_weight(name) in self.config.interleaved

    def _ranges(self, parts: tuple[int, ...]) -> Iterator[tuple[int, int]]:
        """Yield this rank's range of rows of each part of a column-parallel module."""
        first = 0
        for part in parts:
            height = self.parallel.shard(part, "output features")
            start = first + self.parallel.rank * height
            yield start, start + height
            first += part
