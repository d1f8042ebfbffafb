"""Two and four ranks, each with its share of the base model, the pool and the adapters, give the tokens of one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
from lorikeet_testing.tiny_models import ADAPTERS, VOCAB, Adapter, adapter_at, pack_for, save_adapter, save_model

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.model.loading import load_model
from lora_engine.model.parallel import Parallel
from lora_engine.request import GenerationRequest, SamplingParams

Tokens = dict[str, list[int]]


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


def generate(model: Path, adapters: dict[str, Adapter], parallel: Parallel) -> tuple[Tokens, int]:
    """Tokens by request, and the adapters' bytes on this rank."""
    # A pool so small that adapters are evicted and sequences pre-empted on the way.
    config = EngineConfig(model=model, pool_mb=2, page_tokens=4, step_tokens=64, threads=1)
    source = LoadedAdapters()
    engine = Engine(config, source, load_model(config, parallel))
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


def run_rank(rank: int, world: int, folder: Path, model: Path, adapters: dict[str, Adapter]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet-{world}", rank=rank, world_size=world)
    try:
        torch.save(generate(model, adapters, Parallel(rank, world, dist.group.WORLD)), folder / f"{world}-{rank}.pt")
        dist.barrier()  # gloo aborts a process whose peer ends while they still talk
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("family", "world"),
    [
        ("llama2-mha", 2),
        ("llama2-mha", 4),
        ("llama-biases", 2),
        ("qwen2-qkv-bias", 2),
        pytest.param("gemma3-two-ropes", 2, marks=pytest.mark.long),
        pytest.param("cohere2-parallel", 2, marks=pytest.mark.long),
    ],
)
def test_ranks_give_the_tokens_of_one(tmp_path: Path, family: str, world: int) -> None:
    reference = save_model(family, tmp_path / "model", intermediate_size=152)
    adapters = {name: adapter_at(name, save_adapter(name, reference, tmp_path / name)) for name in ADAPTERS}
    alone, whole = generate(tmp_path / "model", adapters, Parallel())
    torch.multiprocessing.spawn(run_rank, (world, tmp_path, tmp_path / "model", adapters), nprocs=world)
    for rank in range(world):
        tokens, held = torch.load(tmp_path / f"{world}-{rank}.pt")
        assert tokens == alone
        assert held < whole


def test_a_model_that_cannot_be_split_is_refused(tmp_path: Path) -> None:
    save_model("llama2-mha", tmp_path / "model")
    with pytest.raises(ValueError, match="cannot be split over 3 tensor-parallel ranks"):
        load_model(EngineConfig(model=tmp_path / "model", pool_mb=2), Parallel(0, 3))


@pytest.mark.parametrize("family", ["phi3-fused", "glm-partial-interleaved", "olmo2-norms-after"])
def test_families_that_cannot_be_split_are_refused(tmp_path: Path, family: str) -> None:
    save_model(family, tmp_path / "model", intermediate_size=152)
    with pytest.raises(ValueError, match="cannot be split over tensor-parallel ranks"):
        load_model(EngineConfig(model=tmp_path / "model", pool_mb=2), Parallel(0, 2))
