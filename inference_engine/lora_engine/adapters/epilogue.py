"""What some kinds of adapters do to a projection after LoRA: ``y = y + factor * y + offset``, output by output.

That is all of DoRA and of biases (ADR 0014). With ``c = m / ||W + s B A||`` (the norm of each row), DoRA's
``c (W x + s B A x) + bias`` is ``y = W x + s B A x + bias`` with the factor ``c - 1`` and the offset
``(1 - c) * bias``. Biases of lora_B, and those that replace the base's, are offsets. Both vectors are computed once,
when the adapter is packed, and lie in pool pages behind the rows of A and B. Zero changes nothing, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from lora_engine.peft_format import BIAS, LORA_BIAS, MAGNITUDE, AdapterManifest, ModuleLora, SafetensorsFile

from .errors import StageError
from .taken_out import BaseMatrices, factors
from .targets import COLUMN_PARALLEL, TargetShapes, shard
from .tensors import module_rows, pool_rows_per_row, read_tensor

Place = tuple[int, str]  # layer, target


@dataclass(frozen=True, slots=True)
class EpilogueSlot:
    """Where one module's vectors lie: pool row offsets from the start of the adapter's pages; None: all zero."""

    target: str
    out_features: int
    factor_row: int | None
    offset_row: int | None


@dataclass(frozen=True, slots=True)
class EpilogueWeights:
    """One target's vectors and its columns of the group's output."""

    out_start: int
    out_stop: int
    factor: torch.Tensor | None  # [out]
    offset: torch.Tensor | None  # [out]


class BaseModules(BaseMatrices, Protocol):
    """The base model's projections, with their biases."""

    def bias(self, layer: int, target: str) -> torch.Tensor | None:
        """``[out]`` float32 on the host; None for a module without one."""


@dataclass(frozen=True, slots=True)
class Own:
    """One module's tensors as the file has them, float32; ``a`` and ``b`` are None where there is no LoRA."""

    scale: float = 0.0
    a: torch.Tensor | None = None  # [rank, in]
    b: torch.Tensor | None = None  # [out, rank]
    magnitude: torch.Tensor | None = None
    lora_bias: torch.Tensor | None = None
    bias: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Computed:
    """A module's vectors ``[out]``, float32; ``added`` is the squared norm of what they and LoRA add to the base's
    module."""

    factor: torch.Tensor | None
    offset: torch.Tensor | None
    added: float


def vectors_of(manifest: AdapterManifest) -> dict[int, dict[str, dict[str, str]]]:
    """By layer and target: which vectors there are, and the tensors' names."""
    layers: dict[int, dict[str, dict[str, str]]] = {}
    for vector in manifest.vectors:
        layers.setdefault(vector.layer, {}).setdefault(vector.target, {})[vector.kind] = vector.name
    return layers


def plan(
    kinds: dict[str, dict[str, str]], cursor: int, kv_dim: int, features: dict[str, int], biased: frozenset[str]
) -> tuple[tuple[EpilogueSlot, ...], int]:
    """Pool rows from ``cursor`` on for the vectors of one layer's modules, and the first row behind them.

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
    kv_dim: int,
    targets: TargetShapes,
    base: BaseModules | None,
) -> dict[Place, float]:
    """Compute the vectors, and write each rank's into its part; what each of their modules adds to the base's."""
    modules, vectors = {(m.layer, m.target): m for m in manifest.modules}, vectors_of(manifest)
    added: dict[Place, float] = {}
    for layer, slots in enumerate(epilogues):
        for slot in slots:
            assert base is not None, "an adapter with vectors is packed beside its base model"
            names = vectors[layer][slot.target]
            own = _own(modules.get((layer, slot.target)), names, weights, base)
            computed = compute(own, base, layer, slot.target)
            for rank, part in parts.items():
                _write(part[layer].view(-1, kv_dim), slot, _share(computed, slot.target, rank, targets.world))
            added[layer, slot.target] = computed.added
    return added


def _share(computed: Computed, target: str, rank: int, world: int) -> Computed:
    """A rank's part. What ranks make of a row-parallel layer is added up: each scales what it made, and only the first
    one's carries the offset."""
    if world == 1:
        return computed
    if target in COLUMN_PARALLEL:
        return replace(computed, factor=_part(computed.factor, rank, world), offset=_part(computed.offset, rank, world))
    return computed if rank == 0 else replace(computed, offset=None)


def _part(vector: torch.Tensor | None, rank: int, world: int) -> torch.Tensor | None:
    return None if vector is None else shard(vector[None], rank, world)[0]


def _own(module: ModuleLora | None, names: Mapping[str, str], weights: SafetensorsFile, base: BaseMatrices) -> Own:
    vectors = {kind: read_tensor(weights, name).float() for kind, name in names.items()}
    rest = (vectors.get(MAGNITUDE), vectors.get(LORA_BIAS), vectors.get(BIAS))
    if module is None:
        return Own(0.0, None, None, *rest)
    a, b = factors(module, weights, base)
    return Own(module.scale, a.float(), b.float(), *rest)


def compute(own: Own, base: BaseModules, layer: int, target: str) -> Computed:
    """Raises ``StageError`` for what does not fit the base."""
    factor, added = _factor(own, base, layer, target)
    offset = None
    if factor is not None or own.bias is not None:
        kept = base.bias(layer, target)
        if kept is not None:
            offset = (kept if own.bias is None else own.bias) - (kept if factor is None else kept + factor * kept)
        elif own.bias is not None:
            raise StageError(
                "adapter_does_not_fit",
                f"The adapter replaces the bias of layers.{layer}.{target}, and the base model has none there.",
                "Upload an adapter that was trained on this base model.",
            )
    if own.lora_bias is not None:
        scaled = own.scale * own.lora_bias
        offset = scaled if offset is None else offset + scaled
    if offset is not None:
        added += float(offset.double().square().sum())
    return Computed(factor, offset, added)


def _factor(own: Own, base: BaseModules, layer: int, target: str) -> tuple[torch.Tensor | None, float]:
    """DoRA's ``m / ||W + s B A|| - 1``, and the squared norm of what is added to W."""
    if own.a is None or own.b is None:
        return None, 0.0
    if own.magnitude is None:
        return None, _product_norm(own)
    a, norms, squares, start = own.a, [], [], 0
    with base.aside():
        for rows in base.rows(layer, target):
            a, these = a.to(rows.device), slice(start, start + len(rows))
            changed = torch.addmm(rows, own.b[these].to(rows.device), a, alpha=own.scale)
            norm = torch.linalg.vector_norm(changed, dim=1)
            scaled = changed * (own.magnitude[these].to(rows.device) / norm)[:, None]
            norms.append(norm.cpu())
            squares.append((scaled - rows).square().sum().cpu())
            start += len(rows)
    factor = own.magnitude / torch.cat(norms) - 1
    if not bool(torch.isfinite(factor).all()):
        raise StageError(
            "adapter_does_not_fit",
            f"DoRA's magnitudes of layers.{layer}.{target} divide by rows whose norm is 0 or not a number.",
            "Upload an adapter that was trained on this base model.",
        )
    return factor, float(torch.stack(squares).double().sum())


def _product_norm(own: Own) -> float:
    """Squared, of ``s B A``: trace(A^T B^T B A) is the sum of (B^T B) * (A A^T)."""
    assert own.a is not None and own.b is not None
    a, b = own.a.double(), own.b.double()
    return max(0.0, own.scale**2 * float(((b.T @ b) * (a @ a.T)).sum()))


def _write(pool_rows: torch.Tensor, slot: EpilogueSlot, computed: Computed) -> None:
    """A module's vectors into ``pool_rows [pool rows, kv_dim]`` of its layer."""
    for row, values in ((slot.factor_row, computed.factor), (slot.offset_row, computed.offset)):
        if row is not None and values is not None:
            module_rows(pool_rows, row, 1, slot.out_features)[0].copy_(values)


def read(pool_rows: torch.Tensor, slot: EpilogueSlot, out_start: int) -> EpilogueWeights:
    """Views of what ``pack`` wrote."""
    factor, offset = (
        None if row is None else module_rows(pool_rows, row, 1, slot.out_features)[0]
        for row in (slot.factor_row, slot.offset_row)
    )
    return EpilogueWeights(out_start, out_start + slot.out_features, factor, offset)
