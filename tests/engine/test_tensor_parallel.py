"""Two and four ranks, each with its share of the base model, the pool and the adapters, give the tokens of one."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
from lorikeet_testing.poisoned_pool import poison
from lorikeet_testing.tiny_models import (
    ADAPTERS,
    VOCAB,
    Adapter,
    adapter_at,
    geometry_of,
    pack_for,
    save_adapter,
    save_model,
)

from lora_engine.adapters.embedding_layers import BaseEmbeddingLayers
from lora_engine.adapters.packing import PoolPacker
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.adapters.targets import LoraSharding
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.model.loading import load_model
from lora_engine.model.parallel import Parallel
from lora_engine.peft_format import AdapterLimits
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.tensor_parallel.leader import Leader

Tokens = dict[str, list[int]]
WHOLE = "dora-r6"  # whose norms are of whole rows: refused where the base model is split


def workload(adapters: dict[str, Adapter]) -> list[GenerationRequest]:
    """Every adapter and the base, greedy and sampled, with prompts longer than a step."""
    rnd = random.Random(7)
    requests = []
    for index in range(18):
        name = ["", *adapters][index % (1 + len(adapters))]
        sampling = SamplingParams(max_tokens=8, ignore_eos=True, temperature=0.9 * (index % 3 == 2), seed=index)
        prompt = [rnd.randrange(VOCAB) for _ in range(rnd.choice((1, 9, 40, 90)))]
        digest = adapters[name].digest if name else ""
        requests.append(GenerationRequest(f"r{index}", prompt, sampling, digest))
    return requests


def generate(
    model: Path, adapters: dict[str, Adapter], parallel: Parallel, sharding: str = "auto", **settings: Any
) -> tuple[Tokens, int]:
    """Tokens by request, and the adapters' bytes on this rank. Free pages are full of NaN."""
    # A pool so small that adapters are evicted and sequences pre-empted on the way.
    config = EngineConfig(
        model=model, page_tokens=4, step_tokens=64, threads=1, lora_sharding=sharding,
        **{"pool_mb": 2, **settings},
    )  # fmt: skip
    source = LoadedAdapters()
    engine = Engine(config, source, load_model(config, parallel))
    poison(engine)
    for adapter in adapters.values():
        source.add(pack_for(engine, adapter))
    held = sum(packed.num_bytes for a in adapters.values() if (packed := source.get(a.digest)) is not None)
    requests = workload(adapters)
    tokens: Tokens = {request.request_id: [] for request in requests}
    for request in requests:
        engine.add_request(request)
    while engine.has_work():
        for delta in engine.step().deltas:
            tokens[delta.request_id] += delta.token_ids
        engine.core.check()
    return tokens, held


@dataclass(frozen=True)
class Case:
    """A family's model and adapters in a folder of their own, where each rank leaves what it generated."""

    folder: Path
    adapters: dict[str, Adapter]

    @property
    def model(self) -> Path:
        return self.folder / "model"

    def of(self, sharding: str, rank: int) -> Path:
        return self.folder / f"{sharding}-{rank}.pt"


def make_case(folder: Path, family: str) -> Case:
    reference = save_model(family, folder / "model", intermediate_size=152)
    names = [name for name in ADAPTERS if name != WHOLE]
    adapters = {name: adapter_at(name, save_adapter(name, reference, folder / name)) for name in names}
    name = "embedding_layers"
    return Case(folder, adapters | {name: adapter_at(name, save_embedding_layers(reference, folder / name))})


def save_embedding_layers(model: Any, folder: Path) -> Path:
    """LoRA on the head, and an embedding of its own."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        task_type="CAUSAL_LM", r=4, target_modules=["q_proj", "lm_head"], modules_to_save=["embed_tokens"],
        init_lora_weights=False,
    )  # fmt: skip
    trained = get_peft_model(model, config)
    for parameter in trained.parameters():
        if parameter.requires_grad:
            parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
    trained.save_pretrained(str(folder))
    trained.unload()
    return folder


def run_rank(rank: int, world: int, folder: Path, cases: list[Case]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    try:
        for case, sharding in product(cases, LoraSharding):
            parallel = Parallel(rank, world, dist.group.WORLD)
            torch.save(generate(case.model, case.adapters, parallel, sharding), case.of(sharding, rank))
        dist.barrier()  # gloo aborts a process whose peer ends while they still talk
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("world", "families"),
    [
        (2, ["llama2-mha", "llama-biases", "qwen2-qkv-bias"]),
        (4, ["llama2-mha"]),
        pytest.param(2, ["gemma3-two-ropes", "cohere2-parallel"], marks=pytest.mark.long),
    ],
    ids=str,
)
def test_ranks_give_the_tokens_of_one(tmp_path: Path, world: int, families: list[str]) -> None:
    """One start of the ranks for all families: it takes longer than what they generate."""
    cases = [make_case(tmp_path / family, family) for family in families]
    torch.multiprocessing.spawn(run_rank, (world, tmp_path, cases), nprocs=world)
    for case in cases:
        alone, whole = generate(case.model, case.adapters, Parallel())
        held: dict[str, int] = {}
        for sharding, rank in product(LoraSharding, range(world)):
            tokens, held[sharding] = torch.load(case.of(sharding, rank))
            assert tokens == alone, (case.folder.name, sharding)
        assert held["full"] < held["outer"] < whole, case.folder.name


def test_a_model_that_cannot_be_split_is_refused(tmp_path: Path) -> None:
    save_model("llama2-mha", tmp_path / "model")
    with pytest.raises(ValueError, match="cannot be split over 3 tensor-parallel ranks"):
        load_model(EngineConfig(model=tmp_path / "model", pool_mb=2), Parallel(0, 3))


@pytest.mark.parametrize("family", ["phi3-fused", "glm-partial-interleaved", "olmo2-norms-after"])
def test_families_that_cannot_be_split_are_refused(tmp_path: Path, family: str) -> None:
    save_model(family, tmp_path / "model", intermediate_size=152)
    with pytest.raises(ValueError, match="cannot be split over tensor-parallel ranks"):
        load_model(EngineConfig(model=tmp_path / "model", pool_mb=2), Parallel(0, 2))


@pytest.mark.long
def test_the_embedding_layers_of_an_adapter_are_the_same_with_a_rank_that_follows(tmp_path: Path) -> None:
    """Rank 0 plans, and tells the other one whose embeddings its rows have; only rank 0 has heads."""
    case = make_case(tmp_path, "llama2-mha")
    adapters = {name: case.adapters[name] for name in ("embedding_layers", "attention-r8")}
    alone, _ = generate(case.model, adapters, Parallel())
    config = EngineConfig(
        model=case.model, pool_mb=2, page_tokens=4, step_tokens=64, threads=2, tensor_parallel=2, max_lora_rank=16
    )
    leader = Leader(config)
    try:
        source = LoadedAdapters()
        engine = Engine(leader.config, source, load_model(leader.config, leader.join()), mirror=leader)
        base, memory = engine.loaded.model.weights, leader.host_memory(pinned=False)
        packer = PoolPacker(
            geometry_of(engine), AdapterLimits(), engine.pool.geometry, engine.targets, engine.pool.data.dtype, memory,
            BaseEmbeddingLayers(base.embedding, base.lm_head),
        )  # fmt: skip
        for adapter in adapters.values():
            manifest = packer.inspect(adapter.folder, check_finite=True)
            source.add(packer.pack(adapter.digest, adapter.folder, manifest))
        requests = workload(adapters)
        for request in requests:
            engine.add_request(request)
        tokens: Tokens = {request.request_id: [] for request in requests}
        while engine.has_work():
            for delta in engine.step().deltas:
                tokens[delta.request_id] += delta.token_ids
        assert tokens == alone
    finally:
        leader.close()
