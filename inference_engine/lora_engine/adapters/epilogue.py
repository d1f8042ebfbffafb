"""Some kinds of adapters change a projection's output after LoRA: ``y = y + factor * y + offset``, per output.

This covers DoRA and biases (ADR 0014). With ``c = m / ||W + s B A||`` (the norm of each row), DoRA's output ``c (W x +
s B A x) + bias`` equals ``y = W x + s B A x + bias`` with the factor ``c - 1`` and the offset ``(1 - c) * bias``.
Biases of lora_B, and those that replace the base's, are offsets. Both vectors are computed once, when the adapter is
packed, and lie in pool pages after the rows of A and B. Zeros change nothing, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from lora_engine.errors import StageError
from lora_engine.memory.page_pool import PoolGeometry
from lora_engine.peft_format import BIAS, LORA_BIAS, MAGNITUDE, AdapterManifest, ModuleLora, SafetensorsFile

from .taken_out import BaseMatrices, factors
from .targets import COLUMN_PARALLEL, Interleaving, TargetShapes
from .tensors import module_rows, pool_rows_per_row, read_tensor

Place = tuple[int, str]  # layer, target


@dataclass(frozen=True, slots=True)
class EpilogueSlot:
    """The place of one module's vectors: pool row offsets from the start of the adapter's pages; None: all zero."""

    target: str
    out_features: int
    factor_row: int | None
    offset_row: int | None


@dataclass(frozen=True, slots=True)
class EpilogueWeights:
    """The vectors of one target and its columns of the group's output."""

    out_start: int
    out_stop: int
    factor: torch.Tensor | None  # [out]
    offset: torch.Tensor | None  # [out]


class BaseModules(BaseMatrices, Protocol):
    """The base model's projections, with their biases."""

    def bias(self, layer: int, target: str) -> torch.Tensor | None:
        """Return ``[out]`` float32 on the host; None for a module without a bias."""


@dataclass(frozen=True, slots=True)
class ModuleTensors:
    """The tensors of one module, float32, with outputs in the engine's order; ``a`` and ``b`` are None without LoRA."""

    scale: float = 0.0
    a: torch.Tensor | None = None  # [rank, in]
    b: torch.Tensor | None = None  # [out, rank]
    magnitude: torch.Tensor | None = None
    lora_bias: torch.Tensor | None = None
    bias: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Computed:
    """The vectors ``[out]`` of a module, float32. ``added`` is the squared norm of all that the adapter adds to it."""

    factor: torch.Tensor | None
    offset: torch.Tensor | None
    added: float


def vectors_of(manifest: AdapterManifest) -> dict[int, dict[str, dict[str, str]]]:
    """Return by layer, target and kind of vector the tensors' names."""
    layers: dict[int, dict[str, dict[str, str]]] = {}
    for vector in manifest.vectors:
        layers.setdefault(vector.layer, {}).setdefault(vector.target, {})[vector.kind] = vector.name
    return layers


def plan(
    kinds: dict[str, dict[str, str]], cursor: int, kv_dim: int, features: dict[str, int], biased: frozenset[str]
) -> tuple[tuple[EpilogueSlot, ...], int]:
    """Assign pool rows from ``cursor`` on to the vectors of one layer's modules; return them and the next free row.

    ``features``: outputs of each target; ``biased``: the targets whose base modules have biases.
    """
    slots = []
    for target, present in kinds.items():
        rows, starts = pool_rows_per_row(features[target], kv_dim), []
        for needed in (MAGNITUDE in present, target in biased or set(present) != {MAGNITUDE}):
            starts.append(cursor if needed else None)
            cursor += rows if needed else 0
        slots.append(EpilogueSlot(target, features[target], *starts))
    return tuple(slots), cursor


@torch.inference_mode()
def pack(
    manifest: AdapterManifest,
    weights: SafetensorsFile,
    epilogues: tuple[tuple[EpilogueSlot, ...], ...],
    parts: Mapping[int, torch.Tensor],
    geometry: PoolGeometry,
    targets: TargetShapes,
    base: BaseModules | None,
) -> dict[Place, float]:
    """Compute the vectors, write each rank's into its part, and return the squared norm that each module adds."""
    modules, vectors = {(m.layer, m.target): m for m in manifest.modules}, vectors_of(manifest)
    added: dict[Place, float] = {}
    for layer, slots in enumerate(epilogues):
        for slot in slots:
            assert base is not None, "an adapter with vectors is packed beside its base model"
            names = vectors[layer][slot.target]
            order = targets.interleaved.get(slot.target)
            tensors = _module_tensors(modules.get((layer, slot.target)), names, weights, base, order)
            computed = compute(tensors, base, layer, slot.target)
            for rank, part in parts.items():
                _write(
                    part[geometry.layer_group(layer)].view(-1, geometry.kv_dim),
                    slot,
                    _share(computed, slot.target, rank, targets),
                )
            added[layer, slot.target] = computed.added
    return added


def _share(computed: Computed, target: str, rank: int, targets: TargetShapes) -> Computed:
    """Return a rank's part. The ranks' outputs of a row-parallel layer are summed: each scales its own, and only the
    first adds the offset.
    """
    if targets.world == 1:
        return computed
    if target in COLUMN_PARALLEL:
        factor, offset = (
            None if vector is None else targets.outputs(target, vector[None], rank)[0]
            for vector in (computed.factor, computed.offset)
        )
        return replace(computed, factor=factor, offset=offset)
    return computed if rank == 0 else replace(computed, offset=None)


def _module_tensors(
    module: ModuleLora | None,
    names: Mapping[str, str],
    weights: SafetensorsFile,
    base: BaseMatrices,
    order: Interleaving | None,
) -> ModuleTensors:
    vectors = {kind: read_tensor(weights, name).float() for kind, name in names.items()}
    if order is not None:
        vectors = {kind: order.by_part(vector) for kind, vector in vectors.items()}
    rest = (vectors.get(MAGNITUDE), vectors.get(LORA_BIAS), vectors.get(BIAS))
    if module is None:
        return ModuleTensors(0.0, None, None, *rest)
    a, b = factors(module, weights, base, order)
    return ModuleTensors(module.scale, a.float(), b.float(), *rest)


def compute(tensors: ModuleTensors, base: BaseModules, layer: int, target: str) -> Computed:
    """Compute a module's vectors. Raises ``StageError`` for an adapter that does not fit the base."""
    factor, added = _factor(tensors, base, layer, target)
    offset = None
    if factor is not None or tensors.bias is not None:
        kept = base.bias(layer, target)
        if kept is not None:
            offset = (kept if tensors.bias is None else tensors.bias) - (
                kept if factor is None else kept + factor * kept
            )
        elif tensors.bias is not None:
            raise StageError(
                "adapter_does_not_fit",
                f"The adapter replaces the bias of layers.{layer}.{target}, and the base model has none there.",
                "Upload an adapter that was trained on this base model.",
            )
    if tensors.lora_bias is not None:
        scaled = tensors.scale * tensors.lora_bias
        offset = scaled if offset is None else offset + scaled
    if offset is not None:
        added += float(offset.double().square().sum())
    return Computed(factor, offset, added)


def _factor(tensors: ModuleTensors, base: BaseModules, layer: int, target: str) -> tuple[torch.Tensor | None, float]:
    """Return DoRA's ``m / ||W + s B A|| - 1``, and the squared norm of the change of W."""
    if tensors.a is None or tensors.b is None:
        return None, 0.0
    if tensors.magnitude is None:
        return None, _product_norm(tensors)
    a, norms, squares, start = tensors.a, [], [], 0
    with base.aside():
        for rows in base.rows(layer, target):
            a, these = a.to(rows.device), slice(start, start + len(rows))
            changed = torch.addmm(rows, tensors.b[these].to(rows.device), a, alpha=tensors.scale)
            norm = torch.linalg.vector_norm(changed, dim=1)
            scaled = changed * (tensors.magnitude[these].to(rows.device) / norm)[:, None]
            norms.append(norm.cpu())
            squares.append((scaled - rows).square().sum().cpu())
            start += len(rows)
    factor = tensors.magnitude / torch.cat(norms) - 1
    if not bool(torch.isfinite(factor).all()):
        raise StageError(
            "adapter_does_not_fit",
            f"DoRA's magnitudes of layers.{layer}.{target} divide by rows whose norm is 0 or not a number.",
            "Upload an adapter that was trained on this base model.",
        )
    return factor, float(torch.stack(squares).double().sum())


def _product_norm(tensors: ModuleTensors) -> float:
    """Return the squared norm of ``s B A``: trace(A^T B^T B A) is the sum of (B^T B) * (A A^T)."""
    assert tensors.a is not None and tensors.b is not None
    a, b = tensors.a.double(), tensors.b.double()
    return max(0.0, tensors.scale**2 * float(((b.T @ b) * (a @ a.T)).sum()))


def _write(pool_rows: torch.Tensor, slot: EpilogueSlot, computed: Computed) -> None:
    """Write a module's vectors into ``pool_rows [pool rows, kv_dim]`` of its layer."""
    for row, values in ((slot.factor_row, computed.factor), (slot.offset_row, computed.offset)):
        if row is not None and values is not None:
            module_rows(pool_rows, row, 1, slot.out_features)[0].copy_(values)


def read(pool_rows: torch.Tensor, slot: EpilogueSlot, out_start: int) -> EpilogueWeights:
    """Return views of the vectors that ``pack`` wrote."""
    factor, offset = (
        None if row is None else module_rows(pool_rows, row, 1, slot.out_features)[0]
        for row in (slot.factor_row, slot.offset_row)
    )
    return EpilogueWeights(out_start, out_start + slot.out_features, factor, offset)
