"""Attention of prefill chunks on a GPU: by the kernels of this repository, or by FlashInfer's where it is installed.

nvcc compiles FlashInfer's kernels on the machine at their first use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate
from typing import Any, Protocol

import torch

from lora_engine.memory.pinned import to_device
from lora_kernels.attention import BLOCK_M, LONG, PrefillWorkspace, paged_prefill, prefill_tiles
from lora_kernels.hopper_prefill import TILE_ROWS, can_attend

from .batch import PrefillSpan
from .shape import ModelShape

# The version that was measured; later ones need packages of hundreds of MiB, or compile for longer.
FLASHINFER = "0.6.12"
# Bytes of the device memory that FlashInfer uses as its workspace.
_WORKSPACE_BYTES = 256 * 2**20
_HEAD_DIMS = (64, 128, 256)
# Rows of a mixed step's graph from which on it takes the kernel for Hopper; prompts of fewer are slower with it.
HOPPER_GRAPH_ROWS = 512

# Attends with queries ``[tokens, heads * head_dim]`` of all rows over a layer's pages ``[pages, page elements]``, into
# ``out`` of the queries' shape; the last arguments are the layer's window, and its sinks ``[heads]`` if it has any.
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int, torch.Tensor | None], None]


class PrefillAttention(Protocol):
    """A backend of prefill attention, which plans a step's chunks once for all layers."""

    def plan(self, spans: Sequence[PrefillSpan]) -> Attend: ...


class TritonPrefill:
    """The prefill attention of ``lora_kernels``, for any head size and window.

    On Hopper GPUs long prompts take the kernel for them where it supports the model.
    """

    def __init__(
        self, shape: ModelShape, page_tokens: int, invariant: bool = False, kv_dtype: torch.dtype | None = None
    ) -> None:
        """Create the backend; ``invariant``: as in ``paged_prefill``, ``kv_dtype``: the pool's (None: the model's)."""
        self._invariant = invariant
        self._heads = {"heads": shape.heads, "kv_heads": shape.kv_heads, "page_tokens": page_tokens}
        self._shape, self._page_tokens = shape, page_tokens
        self._hopper = not invariant and can_attend(
            shape.heads, shape.kv_heads, shape.head_dim, page_tokens, shape.dtype, kv_dtype or shape.dtype, shape.device
        )
        sizes = [] if invariant else [BLOCK_M, TILE_ROWS] if self._hopper else [BLOCK_M]
        self._workspaces = {
            block_m: PrefillWorkspace(shape.kv_heads, shape.head_dim, shape.device, block_m) for block_m in sizes
        }

    def block_m(self, rows: int) -> int:
        """Return the rows of tiles in a graph of a mixed step with ``rows`` rows."""
        return TILE_ROWS if self._hopper and rows >= HOPPER_GRAPH_ROWS else BLOCK_M

    def plan(self, spans: Sequence[PrefillSpan]) -> Attend:
        table = torch.zeros(
            len(spans), max(len(s.pages) for s in spans), dtype=torch.int32, device=spans[0].pages.device
        )
        for row, span in enumerate(spans):
            table[row, : len(span.pages)] = span.pages
        # Short prompts have too few keys for large tiles, which take longer to begin.
        block_m = TILE_ROWS if self._hopper and table.shape[1] * self._page_tokens >= LONG else BLOCK_M
        tiles = self.tiles([(i, s.start, s.stop - s.start, s.context) for i, s in enumerate(spans)], block_m)
        split_keys = bool((tiles[:, -1] > 1).any())
        return self.over(table, to_device(tiles, table.device), block_m, split_keys)

    def tiles(self, spans: Sequence[tuple[int, int, int, int]], block_m: int) -> torch.Tensor:
        """Cut spans into tiles by ``prefill_tiles``."""
        return prefill_tiles(spans, self._shape.heads, self._shape.kv_heads, block_m, split_keys=not self._invariant)

    def over(self, table: torch.Tensor, tiles: torch.Tensor, block_m: int, split_keys: bool) -> Attend:
        """Return attention over a block table and tiles of ``paged_prefill``, whose contents are read when it runs."""
        shape = self._shape

        def attend(
            q: torch.Tensor, pool: torch.Tensor, out: torch.Tensor, window: int, sinks: torch.Tensor | None
        ) -> None:
            paged_prefill(
                q, pool, table, tiles, out, window=window, scale=shape.attention_scale,
                softcap=shape.attention_softcap, sinks=sinks, block_m=block_m, invariant=self._invariant,
                workspace=self._workspaces.get(block_m), split_keys=split_keys, hopper=block_m == TILE_ROWS,
                **self._heads,
            )  # fmt: skip

        return attend


class FlashInferPrefill:
    """The prefill attention of FlashInfer's kernels for Hopper; ``others`` computes layers with a window."""

    def __init__(self, shape: ModelShape, page_tokens: int, others: PrefillAttention) -> None:
        """Create the backend. Raises ``ValueError`` if this machine or model does not support it."""
        _check(shape)
        import flashinfer  # type: ignore[import-not-found]  # optional: see the extra in pyproject.toml

        self._shape, self._page_tokens, self._others = shape, page_tokens, others
        # Two, since the host plans a step while the device may still read the previous step's plan.
        self._wrappers = [
            flashinfer.BatchPrefillWithPagedKVCacheWrapper(
                torch.zeros(_WORKSPACE_BYTES, dtype=torch.uint8, device=shape.device), "NHD", backend="fa3"
            )
            for _ in range(2)
        ]

    def plan(self, spans: Sequence[PrefillSpan]) -> Attend:
        """Plan ``spans``, which must be contiguous."""
        s, page_tokens = self._shape, self._page_tokens
        self._wrappers.reverse()
        wrapper: Any = self._wrappers[0]
        tokens = [span.stop - span.start for span in spans]
        lengths = [span.context + count for span, count in zip(spans, tokens, strict=True)]
        pages = [-(-length // page_tokens) for length in lengths]
        wrapper.plan(
            _starts(tokens),
            _starts(pages),
            torch.cat([span.pages[:count] for span, count in zip(spans, pages, strict=True)]).int(),
            _pinned([(length - 1) % page_tokens + 1 for length in lengths]),
            s.heads,
            s.kv_heads,
            s.head_dim,
            page_tokens,
            causal=True,
            q_data_type=s.dtype,
            sm_scale=s.attention_scale,
            logits_soft_cap=s.attention_softcap or None,
            seq_lens=_pinned(lengths),  # FlashInfer would use pageable memory, whose copy blocks the host
        )
        rows = slice(spans[0].start, spans[-1].stop)
        windowed = self._others.plan(spans) if any(s.windows) else None

        def attend(
            q: torch.Tensor, pool: torch.Tensor, out: torch.Tensor, window: int, sinks: torch.Tensor | None
        ) -> None:
            if window and windowed:
                windowed(q, pool, out, window, sinks)
                return
            cache = pool.view(-1, 2, page_tokens, s.kv_heads, s.head_dim)
            wrapper.run(q[rows].unflatten(1, (s.heads, -1)), cache, out=out[rows].unflatten(1, (s.heads, -1)))

        return attend


def _check(shape: ModelShape) -> None:
    try:
        installed = version("flashinfer-python")
    except PackageNotFoundError:
        installed = ""
    if installed != FLASHINFER:
        have = f"version {installed} is" if installed else "it is not"
        raise ValueError(
            f"--backend flashinfer needs flashinfer-python {FLASHINFER}, but {have} installed: "
            f"pip install flashinfer-python=={FLASHINFER}, or choose --backend triton"
        )
    device, dtype = shape.device, shape.dtype
    if shape.head_dim not in _HEAD_DIMS or dtype == torch.float32:
        raise ValueError(
            f"--backend flashinfer has no kernel for heads of {shape.head_dim} in {dtype}: choose --backend triton"
        )
    if shape.sinks:
        raise ValueError("--backend flashinfer does not compute attention with sinks: choose --backend triton")
    if all(shape.windows):
        raise ValueError(
            "--backend flashinfer is for layers that attend to all tokens, but every layer of this model has a window: "
            "choose --backend triton"
        )
    if device.type != "cuda" or torch.cuda.get_device_capability(device)[0] != 9:
        raise ValueError(
            f"--backend flashinfer uses kernels for Hopper GPUs, not for {device}: choose --backend triton"
        )


def _starts(counts: Sequence[int]) -> torch.Tensor:
    return _pinned([0, *accumulate(counts)])


def _pinned(values: Sequence[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32).pin_memory()
