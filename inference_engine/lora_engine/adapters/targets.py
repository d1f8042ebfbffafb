"""The modules that adapters change: which read the same input, and how they are split over tensor-parallel ranks.

The base's column-parallel modules (q, k, v, gate, up) are split by output, row-parallel ones (o, down) by input. An
adapter's two factors are split in one of two ways, see ``LoraSharding``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import torch

# Targets that read the same input and are therefore shrunk together; a group lists the names of every family, of which
# a model has those of one. A target is a module's name, with its block's where attention has a module of that name. The
# two groups after the MLP's are those of a gated delta layer: its wide input projections with the narrow ones of its
# gates behind them; its output. Then follow the router of a layer with experts and the weight of an MLP beside them,
# and that MLP itself where layers without experts have one of another width; the experts' own modules are no targets of
# this kind (``adapters/experts.py``).
TARGET_GROUPS = (
    ("q_proj", "k_proj", "v_proj", "qkv_proj"),
    ("o_proj",),
    ("gate_proj", "up_proj", "gate_up_proj"),
    ("down_proj",),
    (
        "in_proj_qkv", "in_proj_z", "in_proj_qkvz",
        "linear_attn.q_proj", "linear_attn.k_proj", "linear_attn.v_proj", "linear_attn.g_proj",
        "in_proj_b", "in_proj_a", "in_proj_ba", "linear_attn.b_proj", "linear_attn.a_proj",
    ),
    ("out_proj", "linear_attn.o_proj"),
    ("gate", "shared_expert_gate"),
    ("mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj"),
    ("mlp.shared_experts.down_proj",),
)  # fmt: skip
# Targets of the gates of a gated delta layer, which no matrix in FP8 can hold beside the wide projections.
DELTA_GATES = frozenset({"in_proj_b", "in_proj_a", "in_proj_ba", "linear_attn.b_proj", "linear_attn.a_proj"})
# Index of the experts' modules among the groups that an adapter changes, after those of ``TARGET_GROUPS``.
EXPERTS_GROUP = len(TARGET_GROUPS)
# Targets whose base modules, and adapters, every rank has in full.
REPLICATED = frozenset({"gate", "shared_expert_gate"})
REPLICATED_GROUPS = frozenset(index for index, group in enumerate(TARGET_GROUPS) if not REPLICATED.isdisjoint(group))
_NAMES = frozenset(target for group in TARGET_GROUPS for target in group)
COLUMN_PARALLEL = frozenset(
    {"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", *TARGET_GROUPS[4], *TARGET_GROUPS[7]}
)
COLUMN_PARALLEL_GROUPS = frozenset(
    index for index, group in enumerate(TARGET_GROUPS) if not COLUMN_PARALLEL.isdisjoint(group)
)


def target_of(module: str) -> str:
    """Return the target of a module of a layer, such as ``self_attn.q_proj``."""
    return module if module in _NAMES else module.rpartition(".")[2]


class LoraSharding(StrEnum):
    """The ways to split adapters over ranks.

    ``OUTER`` splits only the factor on the split side: B of a column-parallel module, A of a row-parallel one. Each
    rank has the other one in full and computes a part of the delta, like the base's product, without a further
    exchange. ``FULL`` (S-LoRA, arXiv 2311.03285, section 6) splits the other factor as well: A of a column-parallel
    module by rank rows, B of a row-parallel one by output. Each rank has 1/N of the bytes; between the two products
    ranks exchange A's outputs, which are small, and the sum over ranks that follows a row-parallel module combines the
    parts of B.
    """

    OUTER = "outer"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Interleaving:
    """The order of output features of a module that computes several parts, stored head by head.

    For each of ``heads``, ``sizes`` are its numbers of features of each part. Checkpoints and adapters of Qwen3-Next
    have this order; in the engine, the features of all heads of a part follow each other.
    """

    heads: int
    sizes: tuple[int, ...]

    def by_part(self, rows: torch.Tensor) -> torch.Tensor:
        """Return ``rows [out, …]``, which are stored head by head, part by part."""
        by_head = rows.unflatten(0, (self.heads, sum(self.sizes)))
        return torch.cat([part.flatten(0, 1) for part in by_head.split(self.sizes, dim=1)])

    def in_blocks(self, rows: int) -> Interleaving | None:
        """Return the order of blocks of so many rows; None if a block has features of two parts."""
        if any(size % rows for size in self.sizes):
            return None
        return Interleaving(self.heads, tuple(size // rows for size in self.sizes))


@dataclass(frozen=True, slots=True)
class ModuleShape:
    """A module's rows on one rank: of A, each ``in_features`` long, and of B transposed, each ``out_features``."""

    a_rows: int
    in_features: int
    b_rows: int
    out_features: int


@dataclass(frozen=True, slots=True)
class ExpertShapes:
    """The number of a layer's experts, and their features: ``inner`` are this rank's between their two products."""

    count: int
    hidden: int
    inner: int


@dataclass(frozen=True, slots=True)
class TargetShapes:
    """The ``(in_features, out_features)`` of each target of the base on this rank, after sharding."""

    shapes: dict[str, tuple[int, int]]
    rank: int = 0
    world: int = 1
    biased: frozenset[str] = frozenset()  # targets whose base modules have biases
    sharding: LoraSharding = LoraSharding.OUTER
    # Output features of the whole module by part, of targets that consist of several, each of which is split.
    parts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    interleaved: Mapping[str, Interleaving] = field(default_factory=dict)  # orders of output features in adapters
    experts: ExpertShapes | None = None  # None: no layer has experts

    @property
    def shards(self) -> int:
        """Number of ranks that both factors are split over; 1 if only one of the two is."""
        return self.world if self.sharding is LoraSharding.FULL else 1

    def module(self, target: str, rank: int) -> ModuleShape:
        """Return the shape of a module of ``rank``. Rows of A are split evenly: the last rank's may be padding."""
        ins, outs = self.shapes[target]
        if target in REPLICATED:
            return ModuleShape(rank, ins, rank, outs)
        if target in COLUMN_PARALLEL:
            rows_per_rank = -(-rank // self.shards)
            return ModuleShape(rows_per_rank, ins, rows_per_rank * self.shards, outs)
        return ModuleShape(rank, ins, rank, outs // self.shards)

    def part(self, target: str, a: torch.Tensor, b: torch.Tensor, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a tensor-parallel rank's rows of A ``[rank, in]`` and of B transposed ``[rank, out]``, without
        padding.
        """
        if target in REPLICATED:
            return a, b
        if target not in COLUMN_PARALLEL:
            return shard(a, rank, self.world), shard(b, rank, self.shards) if self.shards > 1 else b
        rows_per_rank = -(-len(a) // self.shards)
        mine = a[rank * rows_per_rank : (rank + 1) * rows_per_rank] if self.shards > 1 else a
        return mine, self.outputs(target, b, rank)

    def outputs(self, target: str, rows: torch.Tensor, rank: int) -> torch.Tensor:
        """Return a tensor-parallel rank's output features of a column-parallel module, in each of ``rows [n, out]``."""
        parts = rows.split(self.parts.get(target, rows.shape[1]), dim=1)
        return torch.cat([shard(part, rank, self.world) for part in parts], dim=1)


def shard(rows: torch.Tensor, rank: int, world: int) -> torch.Tensor:
    """Return a rank's slice of each row."""
    width = rows.shape[1] // world
    return rows[:, rank * width : (rank + 1) * width]
