"""Tensor-parallel ranks on CPUs.

``on_ranks`` has each of them plan by itself: they have to agree without a word. ``led`` starts them as the engine does.
Ranks are forks of a process that has loaded torch. This is imported by each of them, so nothing here imports
``transformers`` or ``peft``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing

from lora_engine.adapters.combining import combine
from lora_engine.adapters.device_tier import AdapterSlot, AdapterTable
from lora_engine.adapters.host_memory import PageableMemory
from lora_engine.adapters.layout import PackedAdapter
from lora_engine.adapters.packing import PoolPacker
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.model.base_modules import base_modules
from lora_engine.model.loading import LoadedModel, base_embedding_layers, load_model
from lora_engine.model.parallel import Parallel
from lora_engine.peft_format import AdapterLimits, parts_of
from lora_engine.request import GenerationRequest, RequestUsage
from lora_engine.tensor_parallel import follower
from lora_engine.tensor_parallel.leader import Leader
from lora_kernels import attention
from lora_kernels.kernel_variants import SHRINK, SPLIT_K, KernelVariant, SplitK

from .forked import forking
from .poisoned_pool import poison
from .tiny_models import Adapter, geometry_of, pack_for

Tokens = dict[str, list[int]]
# A pool so small that adapters are evicted and sequences pre-empted on the way.
SMALL: dict[str, Any] = {"pool_mb": 2, "page_tokens": 4, "step_tokens": 64, "threads": 1}


class Ran(NamedTuple):
    """Tokens by request; adapters' bytes on this rank; of each step, which pages whose sequences and adapters had; how
    often sequences were pre-empted, and adapters brought to the device."""

    tokens: Tokens
    adapter_bytes: int
    pages: str
    preemptions: int
    loads: int


@dataclass(frozen=True)
class Run:
    """A model's adapters, what is asked of them and of ``combined`` ones, and settings besides ``SMALL``."""

    model: Path
    adapters: Sequence[Adapter]
    requests: Sequence[GenerationRequest]
    settings: Mapping[str, Any] = field(default_factory=dict)
    combined: Sequence[str] = ()

    def config(self, **others: Any) -> EngineConfig:
        return EngineConfig(model=self.model, **{**SMALL, **self.settings, **others})

    def on(self, parallel: Parallel, **others: Any) -> Ran:
        """Run the requests on one rank that plans by itself. Free pages are full of NaN.

        The engine's clock counts microseconds by its readings: in the order of the queue, and so in the number of
        pre-emptions, a request that waited too long goes first, and each rank would have waited for another time.
        """
        config, source = self.config(**others), LoadedAdapters()
        engine = Engine(config, source, load_model(config, parallel), clock=count(0.0, 1e-6).__next__)
        poison(engine)
        packed = {adapter.digest: pack_for(engine, adapter) for adapter in self.adapters}
        for digest in self.combined:
            parts = [(packed[part.digest], part.weight) for part in parts_of(digest)]
            memory, limit = PageableMemory(), config.max_lora_rank
            packed[digest] = combine(digest, parts, engine.pool.geometry, engine.targets, memory, limit)
        for each in packed.values():
            source.add(each)
        pages = hashlib.sha256()
        tokens, usages = answers(engine, self.requests, pages)
        preemptions = sum(usage.preemptions for usage in usages)
        adapter_bytes, loads = sum(each.num_bytes for each in packed.values()), engine.core.device_tier.stats.adapters
        return Ran(tokens, adapter_bytes, pages.hexdigest(), preemptions, loads)


def answers(
    engine: Engine, requests: Sequence[GenerationRequest], pages: Any = None
) -> tuple[Tokens, list[RequestUsage]]:
    """Return tokens and usage of requests that arrive together. ``pages`` is a hash updated with every step's pages."""
    tokens: Tokens = {request.request_id: [] for request in requests}
    usages = []
    for request in requests:
        engine.add_request(request)
    while engine.has_work():
        output = engine.step()
        engine.core.check()
        for delta in output.deltas:
            tokens[delta.request_id] += delta.token_ids
        for end in output.finished:
            assert end.error is None, end.error
            usages.append(end.usage)
        if pages is not None:
            pages.update(str([sequence.pages for sequence in engine.core.scheduler.running]).encode())
            pages.update(str([(slot.digest, slot.pages) for slot in engine.core.device_tier.slots()]).encode())
    return tokens, usages


def on_ranks(world: int, folder: Path, runs: Sequence[Run]) -> list[list[Ran]]:
    """Return the results of each run by rank. All runs share one start of the ranks."""
    with forking(engine=True):
        ranks = torch.multiprocessing.start_processes(
            _run_rank, (world, folder, runs), world, join=False, start_method="forkserver"
        )
    while not ranks.join():
        pass
    return list(zip(*(torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(world)), strict=True))


def _run_rank(rank: int, world: int, folder: Path, runs: Sequence[Run]) -> None:
    from . import interpreted  # noqa: F401  (not above: only tests of ranks on CPUs may set Triton's environment)

    torch.set_num_threads(1)
    # Every program takes the interpreter as long, whatever it does.
    attention.FEW = 8
    for variant in (KernelVariant.GEMV_1, KernelVariant.GEMV_2):
        SHRINK[variant], SPLIT_K[variant] = replace(SHRINK[variant], rows=16), SplitK(256)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    try:
        results = [run.on(Parallel(rank, world, dist.group.WORLD)) for run in runs]
        torch.save(results, folder / f"{rank}.pt")
        dist.barrier()  # gloo aborts a process whose peer ends while they still talk
    finally:
        dist.destroy_process_group()


@contextmanager
def led(config: EngineConfig, adapters: Sequence[Adapter]) -> Iterator[Engine]:
    """An engine whose other ranks follow it. Each writes into the data folder which pages it copied adapters to."""
    with forking(engine=True), pytest.MonkeyPatch.context() as patch:
        patch.setattr("lora_engine.tensor_parallel.leader.get_context", lambda _: get_context("forkserver"))
        patch.setattr("lora_engine.tensor_parallel.leader.run_rank", _run_forked_rank)
        leader = Leader(config, loaded_and_recorded)
    try:
        source, config = LoadedAdapters(), leader.config
        engine = Engine(config, source, loaded_and_recorded(config, leader.join()), mirror=leader)
        poison(engine)
        packer = PoolPacker(
            geometry_of(engine), AdapterLimits(max_rank=config.max_lora_rank), engine.pool.geometry, engine.targets,
            engine.pool.data.dtype, leader.host_memory(pinned=False), base_embedding_layers(config, engine.loaded),
            modules=base_modules(config, engine.loaded), fp8=engine.loaded.fp8_adapters,
            partial=config.resident_experts != 1.0,
        )  # fmt: skip
        for adapter in adapters:
            source.add(packer.pack(adapter.digest, adapter.folder, check_finite=True))
        yield engine
    finally:
        leader.close()


def _run_forked_rank(*arguments: Any) -> None:
    """Run a follower that is no child of its leader, and so ends only with its connections."""
    follower.end_with_parent = lambda leader: None
    follower.run_rank(*arguments)


def loaded_and_recorded(config: EngineConfig, parallel: Parallel) -> LoadedModel:
    """Load the model with a pool full of NaN, and record the pages of its adapters in a file."""
    loaded = load_model(config, parallel)
    loaded.pool.data.fill_(float("nan"))
    loaded.pool.record = config.data_dir / f"pages-{parallel.rank}"  # type: ignore[attr-defined]
    return loaded


def _fill_and_record(slot: AdapterSlot, packed: PackedAdapter, table: AdapterTable | None = None) -> None:
    record: Path | None = getattr(slot._pool, "record", None)
    if record and slot.pages and slot.residency is None:
        with record.open("a") as file:
            file.write(f"{slot.pages}\n")
    _fill(slot, packed, table)


_fill = AdapterSlot.fill
AdapterSlot.fill = _fill_and_record  # type: ignore[method-assign]


def recorded(config: EngineConfig, rank: int) -> list[str]:
    """The pages of each copy of an adapter that a rank made, in order."""
    return (config.data_dir / f"pages-{rank}").read_text().splitlines()
