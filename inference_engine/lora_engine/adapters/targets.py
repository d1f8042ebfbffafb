"""The modules that adapters change: which read the same input, and how they are split over tensor-parallel ranks."""

from __future__ import annotations

from dataclasses import dataclass

import torch

# Targets that read the same input, and are therefore shrunk together.
# A model that has the last name of a group as one module has none of the others.
TARGET_GROUPS = (
    ("q_proj", "k_proj", "v_proj", "qkv_proj"), ("o_proj",), ("gate_proj", "up_proj", "gate_up_proj"), ("down_proj",),
)  # fmt: skip
COLUMN_PARALLEL = frozenset({"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"})


@dataclass(frozen=True, slots=True)
class TargetShapes:
    """``(in_features, out_features)`` of each target on this rank, after sharding."""

    shapes: dict[str, tuple[int, int]]
    rank: int = 0
    world: int = 1
    biased: frozenset[str] = frozenset()  # targets whose base modules have biases


def shard(rows: torch.Tensor, rank: int, world: int) -> torch.Tensor:
    """A rank's slice of each row: B of a column-parallel layer, A of a row-parallel one."""
    width = rows.shape[1] // world
    return rows[:, rank * width : (rank + 1) * width]
