"""Adapters on disk, as artifacts to stage, and tiers small enough to overflow."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from lorikeet_testing.adapter_files import GEOMETRY, make_tensors, save_adapter

from lora_engine.adapters.disk_tier import DiskTier
from lora_engine.adapters.host_arena import HostArena
from lora_engine.adapters.host_memory import PageableMemory
from lora_engine.adapters.layout import TargetShapes
from lora_engine.adapters.packing import PoolPacker
from lora_engine.adapters.staging import AdapterTiers
from lora_engine.memory.page_pool import PoolGeometry
from lora_engine.peft_format import TARGETS, AdapterLimits, adapter_digest, folder_digests
from lora_engine.wire import engine_pb2 as pb

POOL = PoolGeometry(GEOMETRY.num_layers, 2, GEOMETRY.num_key_value_heads, GEOMETRY.head_dim)
SHAPES = TargetShapes({target: GEOMETRY.features(target) for target in TARGETS})


@pytest.fixture
def make_artifact(tmp_path):
    """``make(number)`` writes a distinct adapter and returns how to stage it."""

    def make(number: int = 0, **config: object) -> pb.StageAdapterRequest:
        folder = save_adapter(tmp_path / "store" / str(number), make_tensors(), lora_alpha=8 + number, **config)
        digests = folder_digests(folder)
        return pb.StageAdapterRequest(
            digest=adapter_digest(digests), source_uri=f"file://{folder}", file_digests=digests
        )

    return make


@pytest.fixture
def packer() -> PoolPacker:
    return PoolPacker(GEOMETRY, AdapterLimits(), POOL, SHAPES, torch.float32, PageableMemory())


@pytest.fixture
def make_tiers(tmp_path, packer):
    made = []

    def make(disk: int = 1 << 20, arena: int = 1 << 20, root: Path | None = None, **options: object) -> AdapterTiers:
        tiers = AdapterTiers(DiskTier(root or tmp_path / "disk", disk), HostArena(arena), packer, **options)
        made.append(tiers)
        return tiers

    yield make
    for tiers in made:
        tiers.close()
