"""How the ranks of one host meet, and what each of them is."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from lora_engine.config import EngineConfig
from lora_engine.model.parallel import Parallel

_MEET = timedelta(minutes=30)  # a rank that ended meanwhile is noticed by its process


def config_of(config: EngineConfig, rank: int) -> EngineConfig:
    """A rank's own device. Raises ``ValueError`` if there are not so many."""
    device = torch.device(config.device)
    if device.type != "cuda":
        threads = (config.threads or torch.get_num_threads()) // config.tensor_parallel
        return replace(config, threads=max(1, threads))
    index = (device.index or 0) + rank
    if index >= torch.cuda.device_count():
        raise ValueError(
            f"--tensor-parallel {config.tensor_parallel} from {device} on needs {index + 1} GPUs, and there are "
            f"{torch.cuda.device_count()}"
        )
    return replace(config, device=f"cuda:{index}")


def join(config: EngineConfig, rank: int, meeting_place: Path) -> Parallel:
    """Wait for all ranks; ``config`` is this rank's own."""
    device = torch.device(config.device)
    # All ranks are on this host. Multicast of NVLink switches is left to others.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=f"file://{meeting_place}",
        rank=rank,
        world_size=config.tensor_parallel,
        timeout=_MEET,
        device_id=device if device.type == "cuda" else None,
    )
    return Parallel(rank, config.tensor_parallel, dist.group.WORLD)
