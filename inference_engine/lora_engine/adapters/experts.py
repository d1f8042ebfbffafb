"""The LoRA of experts in an adapter's pages.

All rows of an expert lie together, and those of the experts of a layer at equal distances: a kernel finds an expert's
rows from the first one's and the step to the next. A factor that all experts share lies before them, once, with a step
of zero. There is no buffer of slots times experts: an adapter takes the pages of its own ranks and modules.

A page has the same id in every layer, so a *frame*, the pages of one or a few adjacent experts, has room for some
experts of each layer, which need not be the same ones (``expert_residency``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from lora_engine.memory.page_pool import PoolGeometry
from lora_engine.peft_format import DOWN, GATE, GATE_UP, UP, ExpertFactor, ExpertLora, FactorForm, SafetensorsFile

from .fp8_factors import quantise_experts
from .targets import ExpertShapes, shard
from .tensors import factor_rows, pool_rows_per_row, read_tensor

# Modules of an expert, in the order of the kernels' tables.
MODULES = (GATE, UP, DOWN)
# Rows of an expert with padding, as a multiple of those without, up to which a frame takes no further expert.
_MOST_PADDED = 17 / 16


@dataclass(frozen=True, slots=True)
class ExpertSlot:
    """The place of a module of every expert of a layer: pool row offsets from the start of the adapter's pages.

    A has ``rank`` rows of ``in_features``, B transposed as many of ``out_features``. ``a_step`` and ``b_step`` are the
    pool rows from one expert's to the next one's; 0: all experts have the same. Gate and up may have the same A. An
    adapter's steps that are not 0 are equal.
    """

    module: str
    experts: int
    rank: int
    scale: float
    a_row: int
    a_step: int
    b_row: int
    b_step: int
    in_features: int
    out_features: int


@dataclass(frozen=True, slots=True)
class ExpertFactors:
    """A module's factors in the pool: ``a [experts, rank, in]`` and ``b [experts, rank, out]``, with one expert where
    all have the same.
    """

    a: torch.Tensor
    b: torch.Tensor
    scale: float


@dataclass(frozen=True, slots=True)
class ExpertFrames:
    """The division of experts' rows into frames of whole pages, behind an adapter's other modules.

    A frame has ``pages`` pages and the rows of ``experts`` of the ``of_layer`` experts of a layer, adjacent ones: a
    *unit*. Experts are ``step`` rows apart. ``first_units``: by layer, the number of its first unit in its layer group,
    whose layers' units lie behind each other; -1: it has none. ``units``: by layer group, how many it has. Unit n of a
    layer group lies in frame n of the packed adapter.
    """

    first_page: int
    pages: int
    experts: int
    of_layer: int
    step: int
    first_units: tuple[int, ...]
    units: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of frames of all experts."""
        return max(self.units)


def plan_experts(
    by_layer: Sequence[Sequence[ExpertLora]],
    used: Sequence[int],
    geometry: PoolGeometry,
    shapes: ExpertShapes,
    fp8_rows: int = 0,
) -> tuple[tuple[tuple[ExpertSlot, ...], ...], ExpertFrames | None, int]:
    """Assign pool rows behind those that are ``used`` of each layer group to the modules of each layer's experts.

    Returns the slots of each layer, the frames (None if experts share all factors), and the pages up to their end. With
    ``fp8_rows`` the slots count rows of FP8 elements, see ``AdapterLayout``.
    """
    per_row, kv_dim = max(1, fp8_rows), geometry.kv_dim
    cursors = [rows * per_row for rows in used]
    sizes = {module: (shapes.inner, shapes.hidden) if module == DOWN else (shapes.hidden, shapes.inner)
             for module in (*MODULES, GATE_UP)}  # fmt: skip

    def rows_of(lora: ExpertLora, side: int) -> int:
        return lora.rank * pool_rows_per_row(sizes[lora.module][side], kv_dim)

    shared = list[dict[tuple[str, str], int]]()
    most = 0
    for layer, modules in enumerate(by_layer):
        group, places, of_expert = geometry.layer_group(layer), dict[tuple[str, str], int](), 0
        for lora in modules:
            for module, side, factor in _factors(lora):
                rows = rows_of(lora, side)
                if factor.is_shared:
                    places[module, "ab"[side]], cursors[group] = cursors[group], cursors[group] + rows
                else:
                    of_expert += rows
        shared.append(places)
        most = max(most, of_expert)
    rows_per_page = geometry.rows_per_page * per_row
    first_page = -(-max(cursors) // rows_per_page)
    step, each = _aligned(most, rows_per_page, shapes.count) if most else (0, 1)
    first_units, units = [-1] * len(by_layer), [0] * geometry.num_layer_groups
    planned = []
    for layer, modules in enumerate(by_layer):
        group, slots = geometry.layer_group(layer), list[ExpertSlot]()
        cursor = start = first_page * rows_per_page + units[group] * each * step
        for lora in modules:
            scale = lora.scales[0] if len(lora.scales) == 1 else 1.0  # different ones are multiplied into B
            ins, outs = sizes[lora.module]
            places, steps = dict(shared[layer]), {"a": 0, "b": 0}
            for module, side, factor in _factors(lora):
                if not factor.is_shared:
                    steps["ab"[side]] = step
                    places[module, "ab"[side]], cursor = cursor, cursor + rows_of(lora, side)
            for module in (GATE, UP) if lora.module == GATE_UP else (lora.module,):
                a_row = places[GATE, "a"] if lora.module == GATE_UP else places[module, "a"]
                slots.append(
                    ExpertSlot(
                        module, shapes.count, lora.rank, scale, a_row, steps["a"], places[module, "b"], steps["b"], ins,
                        outs,
                    )
                )  # fmt: skip
        if cursor > start:
            first_units[layer] = units[group]
            units[group] += shapes.count // each
        planned.append(tuple(slots))
    if not most:
        return tuple(planned), None, first_page
    sizes_of = each * step // rows_per_page, each, shapes.count, step
    frames = ExpertFrames(first_page, *sizes_of, tuple(first_units), tuple(units))
    return tuple(planned), frames, first_page + frames.count * frames.pages


def _factors(lora: ExpertLora) -> Iterator[tuple[str, int, ExpertFactor]]:
    """Yield the factors in packing order: module, 0 for A or 1 for B, factor. Gate and up in one have one A."""
    modules = (GATE, UP) if lora.module == GATE_UP else (lora.module,)
    yield modules[0], 0, lora.a
    for module in modules:
        yield module, 1, lora.b


def _aligned(rows: int, rows_per_page: int, experts: int) -> tuple[int, int]:
    """Return the step from expert to expert, of at least ``rows``, and the experts of a frame.

    A frame has the fewest experts whose rows fill its pages almost, so that few rows of a page are lost, and few
    experts are copied for one.
    """
    choices = []
    each = 1
    while rows_per_page % each == 0 and experts % each == 0:
        unit = rows_per_page // each
        step = -(-rows // unit) * unit
        if step <= rows * _MOST_PADDED:
            return step, each
        choices.append((step, each))
        each *= 2
    return min(choices)


def expert_rows(shapes: ExpertShapes, rank: int, geometry: PoolGeometry) -> int:
    """Return the largest number of pool rows of LoRA of one rank on every module of a layer's experts."""
    of_hidden, of_inner = (pool_rows_per_row(each, geometry.kv_dim) for each in (shapes.hidden, shapes.inner))
    pages = -(-rank * len(MODULES) * (of_hidden + of_inner) // geometry.rows_per_page)
    return shapes.count * pages * geometry.rows_per_page


def pack_experts(
    modules: Iterable[ExpertLora],
    layout: Sequence[tuple[ExpertSlot, ...]],
    weights: SafetensorsFile,
    parts: Mapping[int, torch.Tensor],
    geometry: PoolGeometry,
    shapes: ExpertShapes,
    world: int,
    *,
    fp8: bool = False,
) -> tuple[tuple[ExpertSlot, ...], ...]:
    """Write the modules into ``parts``, by rank the adapter's pages ``[layer groups, pages, page_elems]``.

    Each expert is split over ranks by its inner features. Returns ``layout`` with the scales of factors in FP8.
    """
    whole, scales = ExpertShapes(shapes.count, shapes.hidden, shapes.inner * world), dict[tuple[int, str], float]()
    for lora in modules:
        slots = {slot.module: slot for slot in layout[lora.layer]}
        group = geometry.layer_group(lora.layer)
        read = list(_modules_of(lora, weights, whole))
        if fp8:
            rounded, outputs, scale = quantise_experts(read[0][1], [b for _, _, b in read])
            read = [(module, rounded, b) for (module, _, _), b in zip(read, outputs, strict=True)]
            scales |= {(lora.layer, module): scale for module, _, _ in read}
        for module, a, b in read:
            for rank, part in parts.items():
                pool_rows = factor_rows(part[group], geometry.kv_dim, fp8=fp8)
                a_part, b_part = (
                    (_part(a, rank, world), b) if module == DOWN else (a, _part(b, rank, world))
                )  # fmt: skip
                for rows, to in zip((a_part, b_part), _views(pool_rows, slots[module]), strict=True):
                    to.copy_(rows)
    return tuple(
        tuple(replace(slot, scale=slot.scale * scales.get((layer, slot.module), 1.0)) for slot in slots)
        for layer, slots in enumerate(layout)
    )


def read_slot(pool_rows: torch.Tensor, slot: ExpertSlot) -> ExpertFactors:
    """Return the factors of a module in the adapter's ``pool_rows [pool rows, kv_dim]`` (of ``factor_rows``), as
    views.
    """
    return ExpertFactors(*_views(pool_rows, slot), slot.scale)


def delta_norm(slots: Iterable[ExpertSlot], parts: Sequence[torch.Tensor]) -> float:
    """Return the squared norm of what the modules add to all experts' matrices.

    ``parts``: each rank's rows ``[pool rows, kv_dim]``.
    """
    total = 0.0
    for slot in slots:
        factors = [read_slot(part, slot) for part in parts]
        a, b = (factors, factors[:1]) if slot.module == DOWN else (factors[:1], factors)
        products = _squared([each.a for each in a]), _squared([each.b for each in b])
        several = slot.experts if slot.a_step == slot.b_step == 0 else 1
        total += several * slot.scale**2 * float((products[0] * products[1]).sum())
    return max(0.0, total)


def _squared(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return ``M M^T`` of each expert's matrix, whose columns are split over ``parts``."""
    return torch.stack([torch.bmm(part.double(), part.double().transpose(1, 2)) for part in parts]).sum(0)


def _views(pool_rows: torch.Tensor, slot: ExpertSlot) -> tuple[torch.Tensor, torch.Tensor]:
    places = (slot.a_row, slot.a_step, slot.in_features), (slot.b_row, slot.b_step, slot.out_features)
    a, b = (_view(pool_rows, row, step, slot.rank, features, slot.experts) for row, step, features in places)
    return a, b


def _view(pool_rows: torch.Tensor, row: int, step: int, rank: int, features: int, count: int) -> torch.Tensor:
    """Return the rows of a factor of each expert, or of all, as a view ``[experts, rank, features]``."""
    kv_dim = pool_rows.shape[1]
    strides = step * kv_dim, pool_rows_per_row(features, kv_dim) * kv_dim, 1
    start = pool_rows.storage_offset() + row * kv_dim
    return pool_rows.as_strided((count if step else 1, rank, features), strides, start)


def _part(rows: torch.Tensor, rank: int, world: int) -> torch.Tensor:
    """Return a rank's features of ``rows [experts, rank, features]``."""
    part: torch.Tensor = shard(rows.flatten(0, 1), rank, world).unflatten(0, rows.shape[:2])
    return part


def _modules_of(
    lora: ExpertLora, weights: SafetensorsFile, shapes: ExpertShapes
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Yield each module with A and B transposed, ``[experts, rank, features]``; scales that differ are in B."""
    sizes = {GATE_UP: (shapes.hidden, 2 * shapes.inner), DOWN: (shapes.inner, shapes.hidden)}
    ins, outs = sizes.get(lora.module, (shapes.hidden, shapes.inner))
    a, b = (read_factor(weights, factor, lora.rank, size) for factor, size in ((lora.a, ins), (lora.b, outs)))
    if len(lora.scales) > 1:
        b = b.float() * torch.tensor(lora.scales)[:, None, None]
    if lora.module != GATE_UP:
        yield lora.module, a, b
        return
    parts = (b[:, :, 0::2], b[:, :, 1::2]) if lora.interleaved else b.split(shapes.inner, dim=2)
    for module, rows in zip((GATE, UP), parts, strict=True):
        yield module, a, rows


def read_factor(weights: SafetensorsFile, factor: ExpertFactor, rank: int, features: int) -> torch.Tensor:
    """Return a factor as ``[experts, rank, features]``, with one expert if all experts share the factor."""
    if factor.form in (FactorForm.EACH_ROWS, FactorForm.EACH_COLUMNS):
        return _read_each(weights, factor, rank, features)
    tensor = read_tensor(weights, factor.names[0])
    if factor.form is FactorForm.ROWS:
        return tensor.view(-1, rank, features)
    if factor.form is FactorForm.COLUMNS:
        return tensor.view(features, rank, -1).permute(2, 1, 0)
    rows = tensor if factor.form is FactorForm.STACKED_ROWS else tensor.transpose(1, 2)
    ranks = slice(factor.first_rank, factor.first_rank + rank)
    return rows[:, ranks, factor.first_feature : factor.first_feature + features]


def _read_each(weights: SafetensorsFile, factor: ExpertFactor, rank: int, features: int) -> torch.Tensor:
    """Read a tensor for each expert; those of lower ranks, and experts without LoRA, have zeros behind."""
    read = [read_tensor(weights, name) if name else None for name in factor.names]
    dtype = next(tensor.dtype for tensor in read if tensor is not None)
    rows = torch.zeros(len(read), rank, features, dtype=dtype)
    for expert, tensor in enumerate(read):
        if tensor is not None:
            matrix = tensor if factor.form is FactorForm.EACH_ROWS else tensor.t()
            rows[expert, : len(matrix)] = matrix
    return rows
