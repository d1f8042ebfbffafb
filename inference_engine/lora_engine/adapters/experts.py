"""The LoRA of experts in an adapter's pages.

Experts of a layer have equal sizes, so their rows lie at equal distances: a kernel finds an expert's rows from the
first one's and the step to the next. A factor that all experts share lies there once, with a step of zero. There is no
buffer of slots times experts: an adapter takes the pages of its own ranks and modules.
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


@dataclass(frozen=True, slots=True)
class ExpertSlot:
    """The place of a module of every expert of a layer: pool row offsets from the start of the adapter's pages.

    A has ``rank`` rows of ``in_features``, B transposed as many of ``out_features``. ``a_step`` and ``b_step`` are the
    pool rows from one expert's to the next one's; 0: all experts have the same. Gate and up may have the same A.
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


def plan_experts(
    modules: Sequence[ExpertLora], cursor: int, kv_dim: int, shapes: ExpertShapes, fp8_rows: int = 0
) -> tuple[tuple[ExpertSlot, ...], int]:
    """Assign pool rows from ``cursor`` on to a layer's modules; return the slots and the next free row.

    With ``fp8_rows`` the slots count rows of FP8 elements, see ``AdapterLayout``.
    """
    slots: list[ExpertSlot] = []
    cursor *= max(1, fp8_rows)
    for lora in modules:
        scale = lora.scales[0] if len(lora.scales) == 1 else 1.0  # different ones are multiplied into B
        ins, outs = (shapes.inner, shapes.hidden) if lora.module == DOWN else (shapes.hidden, shapes.inner)
        a_step = lora.rank * pool_rows_per_row(ins, kv_dim)
        b_step = lora.rank * pool_rows_per_row(outs, kv_dim)
        a_row, cursor = cursor, cursor + a_step * (1 if lora.a.is_shared else shapes.count)
        for module in (GATE, UP) if lora.module == GATE_UP else (lora.module,):
            steps = 0 if lora.a.is_shared else a_step, 0 if lora.b.is_shared else b_step
            slot = ExpertSlot(module, shapes.count, lora.rank, scale, a_row, steps[0], cursor, steps[1], ins, outs)
            slots.append(slot)
            cursor += b_step * (1 if lora.b.is_shared else shapes.count)
    return tuple(slots), -(-cursor // max(1, fp8_rows))


def expert_rows(shapes: ExpertShapes, rank: int, kv_dim: int) -> int:
    """Return the pool rows of LoRA of one rank on every module of a layer's experts."""
    of_hidden, of_inner = pool_rows_per_row(shapes.hidden, kv_dim), pool_rows_per_row(shapes.inner, kv_dim)
    return shapes.count * rank * len(MODULES) * (of_hidden + of_inner)


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
    experts, per_row = count if step else 1, pool_rows_per_row(features, pool_rows.shape[1])
    rows = pool_rows[row : row + experts * rank * per_row]
    view: torch.Tensor = rows.view(experts, rank, per_row * pool_rows.shape[1])[:, :, :features]
    return view


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
    """Return a factor as ``[experts, rank, features]``, of one expert where all have the same."""
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
