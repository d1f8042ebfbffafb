"""The process group of the ranks of a host: their rendezvous, and each rank's device."""

from __future__ import annotations

import logging
import os
import time
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from threading import Thread

import torch
import torch.distributed as dist

from lora_engine.config import EngineConfig
from lora_engine.model.parallel import Exchanges, Parallel

from .symmetric_sums import with_symmetric_memory

log = logging.getLogger(__name__)

# Time until which all ranks must have joined; the end of a rank's process is noticed earlier.
_MEET = timedelta(minutes=30)

# Bytes above which NCCL sums faster on more than two ranks. At 8 MiB it is a little faster alone, but not in a step
# (docs/LOG.md).
_FUSED_BY_MANY = 12 << 20


@dataclass(frozen=True, slots=True)
class Meeting:
    """A rendezvous of ranks through a file that does not exist yet.

    ``one_device``: all ranks share a GPU, for tests on a machine with only one. NCCL refuses that within a host, so
    each rank presents itself as a separate host and exchanges over the loopback interface, which is slow.
    """

    place: Path
    one_device: bool = False

    def index_of_gpu(self, distance: int, index: int) -> int:
        """Return the GPU's index of the rank ``distance`` after the one with GPU ``index``."""
        return index if self.one_device else index + distance


def config_of(config: EngineConfig, rank: int, meeting: Meeting) -> EngineConfig:
    """Return the configuration of a rank, with its device. Raises ``ValueError`` if there are too few GPUs."""
    device = torch.device(config.device)
    if device.type != "cuda":
        threads = (config.threads or torch.get_num_threads()) // config.tensor_parallel
        return replace(config, threads=max(1, threads))
    index = meeting.index_of_gpu(rank, device.index or 0)
    if index >= torch.cuda.device_count():
        raise ValueError(
            f"--tensor-parallel {config.tensor_parallel} from {device} on needs {index + 1} GPUs, but there are "
            f"{torch.cuda.device_count()}"
        )
    return replace(config, device=f"cuda:{index}")


def fused_bytes(setting_mb: int, ranks: int) -> int:
    """Return the maximum size of a sum that norms add up, in bytes; 0: none."""
    return min(setting_mb << 20, _FUSED_BY_MANY) if ranks > 2 else setting_mb << 20


def begin_to_join(config: EngineConfig, rank: int, meeting: Meeting, exchanges: Exchanges) -> Parallel:
    """Join the group in a thread, beside which weights are loaded; ``Parallel.joined`` waits for it."""
    device = torch.device(config.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # of this thread
    joining: Future[Parallel] = Future()

    def run() -> None:
        try:
            joining.set_result(join(config, rank, meeting, exchanges))
        except BaseException as error:
            joining.set_exception(error)

    Thread(target=run, name="join", daemon=True).start()
    return Parallel(rank, config.tensor_parallel, exchanges=exchanges, joining=joining)


def join(config: EngineConfig, rank: int, meeting: Meeting, exchanges: Exchanges) -> Parallel:
    """Join the group and wait for all ranks; ``config`` is this rank's, ``exchanges`` counts its collectives."""
    device = torch.device(config.device)
    # All ranks are on this host. The multicast of NVLink switches stays unused.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    nccl = device.type == "cuda"
    entered = time.monotonic()
    if nccl:
        torch.cuda.set_device(device)
    if nccl and meeting.one_device:
        os.environ |= {"NCCL_HOSTID": f"rank-{rank}", "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo"}
    began = time.monotonic()
    dist.init_process_group(
        "nccl" if nccl else "gloo",
        init_method=f"file://{meeting.place}",
        rank=rank,
        world_size=config.tensor_parallel,
        timeout=_MEET,
        device_id=device if nccl else None,
    )
    met = time.monotonic()
    parallel = with_symmetric_memory(
        Parallel(rank, config.tensor_parallel, dist.group.WORLD, exchanges=exchanges),
        device,
        (config.small_sum_kb << 10) if nccl else 0,
        fused_bytes(config.fused_sum_mb, config.tensor_parallel) if nccl else 0,
        {meeting.index_of_gpu(other - rank, device.index or 0) for other in range(config.tensor_parallel)},
    )
    log.info(
        "rank %d opened its device in %.1f s, and met the others in %.1f s; shared memory took %.1f s",
        rank, began - entered, met - began, time.monotonic() - met,
    )  # fmt: skip
    return parallel
