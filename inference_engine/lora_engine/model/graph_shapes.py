"""The shapes of captured graphs: the shape that a batch needs, the graphs captured at start, and the covering relation.

Most graphs are for decode steps. Graphs of mixed steps hold few prompt tokens beside decode rows: the kernels of such
steps are too short to hide their launches, and where requests arrive one by one nearly every step has such a prompt.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product

from lora_engine.config import STEP_TOKENS, EngineConfig
from lora_kernels.kernel_variants import KernelVariant, LoraShape
from lora_kernels.work_items import tiles_needed

from .batch import LoraSpan
from .config import ModelConfig
from .invariant_ops import LEAST_ROWS
from .shape import ModelShape
from .triton_ops import (
    ALL_GROUPS,
    GRAPH_GROUPS,
    MIXERS,
    USUAL_RANKS,
    covering,
    decode_variant,
    lora_shape,
    max_rank,
    touched,
    usual_shapes,
)

# Minimum rows of a batch that takes each variant: one adapter has two rows, or three (``decode_variant``).
_LEAST_ROWS = {KernelVariant.GEMV_1: 1, KernelVariant.GEMV_2: 2, KernelVariant.GROUPED: 3}
# The only variant of batches with rows that do not depend on each other.
_INVARIANT = {KernelVariant.GROUPED: 1}
# Rows times elements of a layer's matrices from which on a step's kernels take longer than their launches: 1,024 rows
# of an 8B model. Experts with adapters launch twice as many kernels for as many elements (docs/LOG.md).
_LAUNCH_BOUND, _EXPERTS_LAUNCHES = STEP_TOKENS * 218_000_000, 2
# Bytes that a graph keeps on the device, and keeps for each layer (measured on an H200: 58 to 62 KiB).
_GRAPH_BYTES, _LAYER_BYTES = 256 << 10, 64 << 10
# Bytes that all graphs share for workspaces of products, and number of the widest activations alive at a time.
_SHARED_BYTES, _ACTIVATIONS = 64 << 20, 8
# Graphs for high ranks and merged adapters, which are captured on first use.
_UNUSUAL_GRAPHS = 32
# Difference in tiles that does not justify a further graph: empty tiles cost less.
_FEW_TILES = 8
# Rows of mixed graphs with the maximum number of decode rows. Larger steps hide their launches, except those of
# ``graph_rows``, for which there are the larger graphs.
_MIXED_ROWS = (*range(64, 512, 64), *range(512, 1025, 128))
_LARGE_ROWS = (*range(1280, 2048, 256), *range(2048, 4096, 512), *range(4096, 16384, 1024))
# Maximum number of prompts in a mixed step's graph, and in a large one.
_PROMPTS, MAX_PROMPTS = 16, 64
# Rows of mixed graphs, by their number of decode rows.
_MIXED_DECODES = {0: (64,), 16: (64, 128, 256), 64: (128, 256, 512, 1024)}
# Padding rows of a mixed graph at most, and the least share of them in a large one's rows: with more, launching without
# a graph is faster.
_MAX_WASTE, _WASTE_SHARE = 128, 5


@dataclass(frozen=True, slots=True)
class GraphShape:
    """The properties that a capture fixes: rows, and the launches of LoRA kernels over at most ``tiles`` tiles.

    ``lora`` None: no launches. ``decodes``: maximum number of decode rows of a mixed step, whose other rows are of
    prompts; None for decode steps. In a mixed step ``decode_lora`` is for decode rows and ``lora`` for prompts.
    """

    size: int
    lora: LoraShape | None = None
    tiles: int = 0
    groups: frozenset[int] = frozenset()  # target groups that some adapter changes
    merged: bool = False
    delta_correction: LoraShape | None = None  # with merged weights: the launch that subtracts the adapter
    epilogues: bool = False  # some adapter has one; only batches with one launch them
    decodes: int | None = None
    decode_lora: LoraShape | None = None
    drafted: bool = False  # a decode step in which recurrent layers read a table of runs (``RunField``)

    @property
    def prompts(self) -> int:
        """Maximum number of prompts in a mixed step."""
        return _PROMPTS if self.size <= _MIXED_ROWS[-1] else MAX_PROMPTS

    @property
    def sampling_rows(self) -> int:
        """Number of rows of logits."""
        return self.size if self.decodes is None else self.decodes + self.prompts


def graph_sizes(max_running: int, invariant: bool = False) -> list[int]:
    """Return the rows of decode graphs: 1, 2, 4, 8, 16, 24, 32, 48, 64, every 32nd up to 256, then every 64th.

    The largest is ``max_running``. Finer steps gain nothing: the tiles of products are 64 or 128 rows, and a padding
    row costs little else. ``invariant``: sizes below the minimum of its products are left out if there is a larger one.
    """
    sizes = [1, 2, 4, 8, 16, 24, 32, 48, *range(64, 256, 32), *range(256, max_running, 64)]
    least = LEAST_ROWS if invariant else 1
    return [size for size in sizes if least <= size < max_running] + [max_running]


def first_graphs(max_running: int, invariant: bool = False) -> list[GraphShape]:
    """Return the graphs to capture before the first request, largest first; they cover every batch of usual adapters.

    Sizes are powers of two, each without adapters, with any adapters (one tile a row), and with several rows for each
    adapter.
    """
    sizes = graph_sizes(max_running, invariant)
    coarse = [size for size in sizes if size.bit_count() == 1 or size == sizes[-1]]
    shapes = []
    for size in reversed(coarse):
        shapes.append(GraphShape(size))
        for variant in _decode_variants(size, invariant):
            if variant is not KernelVariant.GEMV_2:
                lora = usual_shapes(variant, invariant=invariant)[-1]
                shapes.append(GraphShape(size, lora, tile_bounds(variant, size, invariant)[-1], ALL_GROUPS))
    return shapes


def drafted_graphs(max_running: int, rows: int, invariant: bool = False) -> list[GraphShape]:
    """Return the graphs of decode steps with up to ``rows`` rows and drafts, for models with recurrent layers.

    They cover every batch of usual adapters; the others are captured once steps need them.
    """
    shapes = first_graphs(max_running, invariant) if rows else []
    largest = min((shape.size for shape in shapes if shape.size >= rows), default=max_running)
    return [replace(shape, drafted=True) for shape in shapes if shape.size <= largest]


def drafted_rows(config: EngineConfig, model: ModelShape) -> int:
    """Return the maximum number of rows of decode steps with drafts on a model with recurrent layers; 0 without."""
    if model.delta is None or config.speculation == "off":
        return 0
    return min(config.max_running, config.drafting_sequences * (1 + config.speculation_tokens))


def graph_rows(config: EngineConfig, model: ModelConfig, shape: ModelShape) -> int:
    """Return the rows of the largest graph of steps with prompts, a multiple of 1,024 or those of the largest step.

    The kernels of larger steps take longer than their launches. Each of several ranks, which also wait for each other,
    computes a part of a step.
    """
    layers, experts = range(shape.num_layers), shape.experts
    elements = sum(math.prod(shape.targets[target]) for layer in layers for target in shape.targets_of(layer))
    if experts is not None:
        inner = experts.inner // config.tensor_parallel
        elements += len(shape.sparse_layers) * experts.per_token * 3 * inner * model.hidden_size
    launches = 1 if experts is None else _EXPERTS_LAUNCHES
    steps = int(launches * _LAUNCH_BOUND * shape.num_layers / (elements * STEP_TOKENS))
    return max(STEP_TOKENS, min(config.max_step_tokens, STEP_TOKENS * max(steps, config.tensor_parallel)))


def usual_graphs(max_running: int, ranks: Sequence[int] = USUAL_RANKS, invariant: bool = False) -> list[GraphShape]:
    """Return every graph that batches of adapters of ``ranks`` need, largest first."""
    shapes = []
    for size in reversed(graph_sizes(max_running, invariant)):
        shapes.append(GraphShape(size))
        for groups, variant in product((MIXERS, ALL_GROUPS), _decode_variants(size, invariant)):
            bounds = tile_bounds(variant, size, invariant)
            for lora, tiles in product(usual_shapes(variant, ranks, invariant), bounds):
                shapes.append(GraphShape(size, lora, tiles, groups))
    return shapes


def mixed_graphs(max_running: int, most_rows: int = 0) -> list[GraphShape]:
    """Return the graphs of mixed steps, without adapters and with usual ones, largest first.

    ``most_rows``: there are large ones too, up to this number of rows.
    """
    large = [rows for rows in _LARGE_ROWS if rows < most_rows]
    large += [most_rows] if most_rows > _MIXED_ROWS[-1] else []
    few = {decodes: sizes for decodes, sizes in _MIXED_DECODES.items() if decodes < max_running}
    lora, decode_lora = (usual_shapes(v)[-1] for v in (KernelVariant.PREFILL, KernelVariant.GROUPED))
    shapes = []
    for decodes, sizes in (few | {max_running: (*_MIXED_ROWS, *large)}).items():
        for size in sizes:
            if size > decodes:
                base = GraphShape(size, decodes=decodes)
                shapes.append(base)
                of_decodes = decode_lora if decodes else None
                for groups in (MIXERS, ALL_GROUPS):
                    tiles = _prompt_tiles(size, base.prompts)
                    shapes.append(GraphShape(size, lora, tiles, groups, decodes=decodes, decode_lora=of_decodes))
    return sorted(shapes, key=lambda shape: -shape.size)


def _prompt_tiles(size: int, prompts: int) -> int:
    """Return the tiles of a mixed graph: of prompts' rows, and of rows without an adapter between and after them."""
    return size // KernelVariant.PREFILL + 2 * prompts + 1


def fitting_mixed_graphs(
    graphs: Sequence[GraphShape], decodes: int, tokens: int, spans: Sequence[LoraSpan], prompts: int = 1
) -> list[GraphShape]:
    """Return the graphs that hold a mixed step of ``tokens`` rows, ``decodes`` of them decode rows; best first."""
    if spans and max_rank(spans) > USUAL_RANKS[-1]:
        return []
    groups = touched(spans)
    fitting = [
        shape
        for shape in graphs
        if shape.decodes is not None
        and decodes <= shape.decodes
        and prompts <= shape.prompts
        and tokens <= shape.size <= tokens + max(_MAX_WASTE, shape.size // _WASTE_SHARE)
        and (shape.lora is None) == (not spans)
        and groups <= shape.groups
    ]
    return sorted(fitting, key=lambda shape: (shape.size, len(shape.groups), shape.decodes))


def _decode_variants(size: int, invariant: bool) -> list[KernelVariant]:
    """Return the variants that a decode batch of ``size`` rows may take."""
    return [variant for variant, least in (_INVARIANT if invariant else _LEAST_ROWS).items() if size >= least]


def graph_memory(
    max_running: int, model: ModelShape, invariant: bool = False, most_rows: int = 0, drafted_rows: int = 0
) -> int:
    """Return the device memory in bytes that graphs may take: every usual one, and some others."""
    mixed = [] if invariant else mixed_graphs(max_running, most_rows)
    graphs = len(usual_graphs(max_running, invariant=invariant)) + len(mixed) + _UNUSUAL_GRAPHS
    graphs += len(drafted_graphs(max_running, drafted_rows, invariant))
    widest = max(features for pair in model.targets.values() for features in pair)
    rows = max([max_running, *(shape.size for shape in mixed)])
    activations = _ACTIVATIONS * widest
    if model.experts is not None:  # of each pair the inputs and sums of both products, and what adapters add to these
        activations += model.experts.per_token * (3 * model.experts.inner + 2 * widest)
    return (
        _SHARED_BYTES
        + rows * activations * model.dtype.itemsize
        + graphs * (_GRAPH_BYTES + model.num_layers * _LAYER_BYTES)
    )


def graph_shape(
    size: int, spans: Sequence[LoraSpan], merged: bool, invariant: bool = False, drafted: bool = False
) -> GraphShape:
    """Return the shape of the graph for ``size`` rows with the adapters of ``spans``."""
    added = [span for span in spans if span.sign > 0]
    groups, epilogues = touched(spans), any(span.slot.has_epilogues for span in added)
    if groups:
        groups = next(several for several in GRAPH_GROUPS if groups <= several)
    subtracted = next((span.slot.rank for span in spans if span.sign < 0), 0)
    delta_correction = lora_shape(KernelVariant.GROUPED, subtracted) if subtracted else None
    if not added:
        return GraphShape(size, groups=groups, merged=merged, delta_correction=delta_correction, drafted=drafted)
    covered = covering(added, size)
    lora = lora_shape(decode_variant(covered, invariant), max_rank(added), invariant)
    needed = tiles_needed(covered, lora.variant)
    tiles = next(tiles for tiles in tile_bounds(lora.variant, size, invariant) if tiles >= needed)
    return GraphShape(size, lora, tiles, groups, merged, delta_correction, epilogues, drafted=drafted)


def nearest_cover(captured: Iterable[GraphShape], wanted: GraphShape, spans: Sequence[LoraSpan]) -> GraphShape | None:
    """Return the captured graph that covers ``wanted`` with the least waste: compare sizes first, then variants."""
    needed = _Tiles([span for span in spans if span.sign > 0])

    def waste(shape: GraphShape) -> tuple[int, bool, int, bool, int, int, int]:
        other = shape.lora is not None and wanted.lora is not None and shape.lora.variant != wanted.lora.variant
        rank = shape.lora.max_rank if shape.lora else 0
        further = shape.drafted, len(shape.groups), rank, shape.tiles
        return (shape.size - 1).bit_length(), other, shape.size, *further

    return min((shape for shape in captured if _covers(shape, wanted, needed)), key=waste, default=None)


def _covers(shape: GraphShape, wanted: GraphShape, needed: _Tiles) -> bool:
    """Return whether the graph ``shape`` computes the same for a batch that needs ``wanted``.

    Further rows are padding, further groups or ranks have no adapter's rows, and further tiles are empty.
    """
    if shape.decodes != wanted.decodes or shape.merged != wanted.merged or not shape.groups >= wanted.groups:
        return False
    if shape.size < wanted.size or shape.drafted < wanted.drafted:
        return False
    if shape.delta_correction != wanted.delta_correction or shape.epilogues != wanted.epilogues:
        return False
    if shape.lora is None or wanted.lora is None:
        return shape.lora is wanted.lora
    return shape.lora.max_rank >= wanted.lora.max_rank and needed.with_padding(shape.lora, shape.size) <= shape.tiles


class _Tiles:
    """The numbers of tiles of a batch, by variant and rows with padding."""

    def __init__(self, spans: Sequence[LoraSpan]) -> None:
        self._end = max((span.stop for span in spans), default=0)
        self._covered = covering(spans, self._end)
        self._counts: dict[KernelVariant, int] = {}

    def with_padding(self, lora: LoraShape, size: int) -> int:
        variant = lora.variant
        if variant not in self._counts:
            self._counts[variant] = tiles_needed(self._covered, variant)
        return self._counts[variant] + -(-(size - self._end) // variant)


def delta_correction_tiles(size: int) -> int:
    """Return the maximum number of tiles of rows that do not use the merged adapter: a tile has at least one row."""
    return size


def tile_bounds(variant: KernelVariant, size: int, invariant: bool = False) -> Sequence[int]:
    """Return the numbers of tiles for which graphs of a variant have room: the expand spends time on empty tiles.

    Every tile has at least one row. Up to three spans are rows without an adapter in this launch: rows without one,
    rows of the merged adapter, and padding.

    For GEMV_2, n adapters have r > 1.5 n rows (``decode_variant``), n <= (2r - 1) / 3: at most (r + n) / 2 tiles.
    Three such spans have size - r >= 3 rows: at most (size - r + 3) / 2 tiles. The sum is largest with r = size - 3. In
    GROUPED adapters have more than 2.5 rows on average; the first bound is for more than eight. ``invariant``: an
    adapter may have one row.
    """
    if variant is KernelVariant.GEMV_1:
        return (size,)
    if variant is KernelVariant.GEMV_2:
        return ((5 * size + 2) // 6,)
    few, many = (min(size, int(size / rows) + size // variant + 3) for rows in (8, 2.5))
    bounds = sorted({few, many, size} if invariant else {few, many})
    return (*(tiles for tiles, more in pairwise(bounds) if more - tiles >= _FEW_TILES), bounds[-1])
