"""Which graphs there are: what a batch needs, what is captured before the first request, what covers what.

Most are of decode steps. Those of mixed steps hold few tokens of prompts beside decode rows: their kernels are too
short to hide their launches, and where requests come one by one nearly every step has such a prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from lora_kernels.kernel_variants import KernelVariant, LoraShape
from lora_kernels.work_items import tiles_needed

from .batch import LoraSpan
from .invariant_ops import LEAST_ROWS
from .shape import ModelShape
from .triton_ops import (
    ALL_GROUPS,
    ATTENTION,
    USUAL_RANKS,
    covering,
    decode_variant,
    lora_shape,
    max_rank,
    touched,
    usual_shapes,
)

# The least rows of a batch that takes a variant: an adapter with two of them, one with four (``decode_variant``).
_LEAST_ROWS = {KernelVariant.GEMV_1: 1, KernelVariant.GEMV_2: 2, KernelVariant.GROUPED: 4}
_INVARIANT = {KernelVariant.GROUPED: 1}  # the one variant of batches in which rows do not depend on each other
# What a graph keeps on the device, and keeps of each layer (measured on an H200: 58 to 62 KiB); and what all of them
# share: workspaces of products, and activations, at most so many of the widest at a time.
_GRAPH_BYTES, _LAYER_BYTES = 256 << 10, 64 << 10
_SHARED_BYTES, _ACTIVATIONS = 64 << 20, 8
_UNUSUAL_GRAPHS = 32  # of high ranks and merged adapters, captured when they first come
_FEW_TILES = 8  # as many more or less cost less than a graph of their own is worth
# Of mixed steps: prompts, rows, and decode rows among them, with most rows. Larger steps hide their launches.
MOST_PROMPTS = 16
_MIXED_ROWS = (*range(64, 512, 64), *range(512, 1025, 128))  # beside as many decode rows as there may be
_MIXED_DECODES = {0: (64,), 16: (64, 128, 256), 64: (128, 256, 512, 1024)}
_LONGEST_WASTE = 128  # rows more than a step has; a graph for so many more is slower than launching


@dataclass(frozen=True, slots=True)
class GraphShape:
    """What a capture fixes: rows, and how LoRA kernels are launched over at most ``tiles`` tiles (None: not at all)."""

    size: int
    lora: LoraShape | None = None
    tiles: int = 0
    groups: frozenset[int] = frozenset()  # target groups that some adapter touches
    merged: bool = False
    delta_correction: LoraShape | None = None  # with merged weights: what subtracts it from other rows
    epilogues: bool = False  # of some adapter; only batches with one pay for its launches
    decodes: int | None = None  # of a mixed step, at most so many rows; all others are of prompts. None: all rows are
    decode_lora: LoraShape | None = None  # of a mixed step, for its decode rows; ``lora`` is for its prompts then

    @property
    def sampling_rows(self) -> int:
        """Rows of logits."""
        return self.size if self.decodes is None else self.decodes + MOST_PROMPTS


def graph_sizes(max_running: int, invariant: bool = False) -> list[int]:
    """1, 2, 4, 8, 16, 24, 32, 48, 64, every 32nd up to 256, then every 64th, up to ``max_running``.

    Finer ones gain nothing: the tiles of products are 64 or 128 rows, and a padding row costs little else.
    ``invariant``: none with fewer rows than its products take, if there is a larger one.
    """
    sizes = [1, 2, 4, 8, 16, 24, 32, 48, *range(64, 256, 32), *range(256, max_running, 64)]
    least = LEAST_ROWS if invariant else 1
    return [size for size in sizes if least <= size < max_running] + [max_running]


def first_graphs(max_running: int, invariant: bool = False) -> list[GraphShape]:
    """What is captured before the first request, largest first: together they cover every batch of usual adapters.

    For powers of two, no adapter, any adapters (one tile a row), and several rows to an adapter.
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


def usual_graphs(max_running: int, ranks: Sequence[int] = USUAL_RANKS, invariant: bool = False) -> list[GraphShape]:
    """Every graph that batches of usual adapters ask for, largest first; or adapters of other ``ranks``."""
    shapes = []
    for size in reversed(graph_sizes(max_running, invariant)):
        shapes.append(GraphShape(size))
        for groups, variant in product((ATTENTION, ALL_GROUPS), _decode_variants(size, invariant)):
            bounds = tile_bounds(variant, size, invariant)
            for lora, tiles in product(usual_shapes(variant, ranks, invariant), bounds):
                shapes.append(GraphShape(size, lora, tiles, groups))
    return shapes


def mixed_graphs(max_running: int) -> list[GraphShape]:
    """Those of mixed steps, with no adapter or any usual ones, largest first."""
    few = {decodes: sizes for decodes, sizes in _MIXED_DECODES.items() if decodes < max_running}
    lora, decode_lora = (usual_shapes(v)[-1] for v in (KernelVariant.PREFILL, KernelVariant.GROUPED))
    shapes = []
    for decodes, sizes in (few | {max_running: _MIXED_ROWS}).items():
        for size in sizes:
            if size > decodes:
                shapes.append(GraphShape(size, decodes=decodes))
                of_decodes = decode_lora if decodes else None
                for groups in (ATTENTION, ALL_GROUPS):
                    tiles = _prompt_tiles(size)
                    shapes.append(GraphShape(size, lora, tiles, groups, decodes=decodes, decode_lora=of_decodes))
    return sorted(shapes, key=lambda shape: -shape.size)


def _prompt_tiles(size: int) -> int:
    """Of prompts' rows, and of those of none between two prompts and behind all."""
    return size // KernelVariant.PREFILL + 2 * MOST_PROMPTS + 1


def fitting_mixed_graphs(
    graphs: Sequence[GraphShape], decodes: int, tokens: int, spans: Sequence[LoraSpan]
) -> list[GraphShape]:
    """Of ``graphs``, those that hold a mixed step of ``tokens`` rows, of which ``decodes`` decode; best first."""
    if spans and max_rank(spans) > USUAL_RANKS[-1]:
        return []
    groups = touched(spans)
    fitting = [
        shape
        for shape in graphs
        if shape.decodes is not None
        and decodes <= shape.decodes
        and tokens <= shape.size <= tokens + _LONGEST_WASTE
        and (shape.lora is None) == (not spans)
        and groups <= shape.groups
    ]
    return sorted(fitting, key=lambda shape: (shape.size, len(shape.groups), shape.decodes))


def _decode_variants(size: int, invariant: bool) -> list[KernelVariant]:
    """Those that a batch of ``size`` rows may take."""
    return [variant for variant, least in (_INVARIANT if invariant else _LEAST_ROWS).items() if size >= least]


def graph_memory(max_running: int, model: ModelShape, invariant: bool = False) -> int:
    """Bytes of the device that graphs may keep: every usual one, and some others."""
    mixed = [] if invariant else mixed_graphs(max_running)
    graphs = len(usual_graphs(max_running, invariant=invariant)) + len(mixed) + _UNUSUAL_GRAPHS
    widest = max(features for pair in model.targets.values() for features in pair)
    rows = max([max_running, *(shape.size for shape in mixed)])
    activations = _ACTIVATIONS * rows * widest * model.dtype.itemsize
    return _SHARED_BYTES + activations + graphs * (_GRAPH_BYTES + model.num_layers * _LAYER_BYTES)


def graph_shape(size: int, spans: Sequence[LoraSpan], merged: bool, invariant: bool = False) -> GraphShape:
    """The graph for ``size`` rows whose adapters ``spans`` name."""
    added = [span for span in spans if span.sign > 0]
    groups, epilogues = touched(spans), any(span.slot.has_epilogues for span in added)
    if groups:
        groups = ATTENTION if groups <= ATTENTION else ALL_GROUPS  # a graph for each set would be too many
    subtracted = next((span.slot.rank for span in spans if span.sign < 0), 0)
    delta_correction = lora_shape(KernelVariant.GROUPED, subtracted) if subtracted else None
    if not added:
        return GraphShape(size, groups=groups, merged=merged, delta_correction=delta_correction)
    covered = covering(added, size)
    lora = lora_shape(decode_variant(covered, invariant), max_rank(added), invariant)
    needed = tiles_needed(covered, lora.variant)
    tiles = next(tiles for tiles in tile_bounds(lora.variant, size, invariant) if tiles >= needed)
    return GraphShape(size, lora, tiles, groups, merged, delta_correction, epilogues)


def nearest_cover(captured: Iterable[GraphShape], wanted: GraphShape, spans: Sequence[LoraSpan]) -> GraphShape | None:
    """The graph that wastes least of those that cover ``wanted``: of about its size first, then of its variant."""
    needed = _Tiles([span for span in spans if span.sign > 0])

    def waste(shape: GraphShape) -> tuple[int, bool, int, int, int, int]:
        other = shape.lora is not None and wanted.lora is not None and shape.lora.variant != wanted.lora.variant
        rank = shape.lora.max_rank if shape.lora else 0
        return (shape.size - 1).bit_length(), other, shape.size, len(shape.groups), rank, shape.tiles

    return min((shape for shape in captured if _covers(shape, wanted, needed)), key=waste, default=None)


def _covers(shape: GraphShape, wanted: GraphShape, needed: _Tiles) -> bool:
    """Whether the graph ``shape`` computes the same for a batch that asks for ``wanted``.

    More rows are padding, more groups or ranks find no adapter's rows there, and more tiles are empty.
    """
    if shape.decodes != wanted.decodes or shape.merged != wanted.merged or not shape.groups >= wanted.groups:
        return False
    if shape.size < wanted.size:
        return False
    if shape.delta_correction != wanted.delta_correction or shape.epilogues != wanted.epilogues:
        return False
    if shape.lora is None or wanted.lora is None:
        return shape.lora is wanted.lora
    return shape.lora.max_rank >= wanted.lora.max_rank and needed.with_padding(shape.lora, shape.size) <= shape.tiles


class _Tiles:
    """How many tiles a batch is cut into, by variant and rows with padding."""

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
    """The rows that do not use the merged adapter, cut by adapter: each at least one row."""
    return size


def tile_bounds(variant: KernelVariant, size: int, invariant: bool = False) -> Sequence[int]:
    """How many tiles graphs of a variant have room for: empty ones cost the expand time, and no tile is without a row.

    Up to three spans are rows that this launch gives no adapter: those without one, the merged adapter's, padding.

    For GEMV_2, n adapters have r > 1.5 n rows (``decode_variant``), n <= (2r - 1) / 3: at most (r + n) / 2 tiles.
    Three such spans have size - r >= 3 rows: at most (size - r + 3) / 2 tiles. The sum is largest with r = size - 3. In
    GROUPED there are more than three rows to an adapter; the first bound is for more than eight. ``invariant``: as few
    as one.
    """
    if variant is KernelVariant.GEMV_1:
        return (size,)
    if variant is KernelVariant.GEMV_2:
        return ((5 * size + 2) // 6,)
    few, many = (min(size, size // rows + size // variant + 3) for rows in (8, 3))
    bounds = sorted({few, many, size} if invariant else {few, many})
    return (*(tiles for tiles, more in pairwise(bounds) if more - tiles >= _FEW_TILES), bounds[-1])
