"""On GPUs several ranks give the logits of one: two on one device, which exchange through host memory, and, where there
are more devices, one on each, with NCCL inside graphs. In float32: sums of another order differ in the last bits.

Each engine has a process of its own, and so compiles its kernels beside the others.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.shape_runs import captured_logits
from lorikeet_testing.tiny_models import ADAPTERS, VOCAB, Adapter, adapter_at, geometry_of, save_adapter, save_model

from lora_engine.adapters.host_memory import PageableMemory
from lora_engine.adapters.layout import PackedAdapter
from lora_engine.adapters.packing import PoolPacker
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.model.base_modules import BaseModules
from lora_engine.model.loading import load_model
from lora_engine.peft_format import AdapterLimits
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.tensor_parallel.leader import Leader

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

SHAPE = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4}
NEW = 8
GREEDY = SamplingParams(max_tokens=NEW, ignore_eos=True)  # ranks exchange only the likeliest tokens
Answers = dict[str, tuple[list[int], torch.Tensor]]  # tokens, and the logits that each was chosen from


@dataclass(frozen=True)
class Case:
    """A model and adapters, on disk."""

    model: Path
    adapters: tuple[Adapter, ...]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    root = tmp_path_factory.mktemp("ranks")
    reference = save_model("llama2-mha", root / "model", **SHAPE)
    names = [name for name in ADAPTERS if name != "dora-r6"]  # whose norms are of whole rows
    adapters = tuple(adapter_at(name, save_adapter(name, reference, root / name)) for name in names)
    return Case(root / "model", adapters)


def requests_of(case: Case) -> list[GenerationRequest]:
    """The base and every adapter, alone in a row and several to an adapter; prompts longer than a step."""
    rnd, digests = random.Random(5), ["", *(adapter.digest for adapter in case.adapters)]
    requests = []
    for index in range(2 * len(digests) + 12):
        digest = digests[min(index, len(digests) - 1)] if index < len(digests) else digests[index % 4]
        prompt = [rnd.randrange(VOCAB) for _ in range(rnd.choice((1, 9, 40, 90)))]
        # With log-probabilities, every step goes through ``sample``.
        params = SamplingParams(max_tokens=NEW, ignore_eos=True, logprobs=True)
        requests.append(GenerationRequest(f"{index}", prompt, params, digest))
    return requests


def packed_for(engine: Engine, leader: Leader | None, case: Case) -> list[PackedAdapter]:
    memory = PageableMemory() if leader is None else leader.host_memory(pinned=True)
    packer = PoolPacker(
        geometry_of(engine), AdapterLimits(), engine.pool.geometry, engine.targets, engine.pool.data.dtype, memory,
        modules=BaseModules(engine.loaded.model.weights, engine.targets.shapes),
    )  # fmt: skip
    return [
        packer.pack(adapter.digest, adapter.folder, packer.inspect(adapter.folder, check_finite=True))
        for adapter in case.adapters
    ]


def answers(case: Case, ranks: int, sharding: str, graphs: bool, settings: dict[str, Any]) -> tuple[Answers, int]:
    """By an engine as it is started, and the adapters' bytes on one rank. Graphs are captured when they are used."""
    torch.set_num_threads(2)
    config = EngineConfig(
        model=case.model, device="cuda", dtype="float32", pool_mb=128, page_tokens=16, step_tokens=64, max_running=32,
        tensor_parallel=ranks, fast_start=False, lora_sharding=sharding, cuda_graphs=graphs, prefix_cache=False,
        **settings,
    )  # fmt: skip
    leader = Leader(config, one_device=not graphs) if ranks > 1 else None
    try:
        config = config if leader is None else leader.config
        loaded = load_model(config) if leader is None else load_model(config, leader.join())
        source = LoadedAdapters()
        engine = Engine(config, source, loaded, mirror=leader)
        adapters = packed_for(engine, leader, case)
        for packed in adapters:
            source.add(packed)
        found: dict[str, tuple[list[int], list[torch.Tensor]]] = {}
        for request in requests_of(case):
            found[request.request_id] = [], []
            engine.add_request(request)
        with captured_logits() as seen:
            while engine.has_work():
                output = engine.step()
                for delta in output.deltas:
                    tokens, logits = found[delta.request_id]
                    tokens.extend(delta.token_ids)
                    logits.append(seen.pop(0).cpu())
                for end in output.finished:
                    assert end.error is None, end.error
        for request in requests_of(case):
            name = f"greedy {request.request_id}"
            found[name] = [], [torch.zeros(1)] * NEW
            engine.add_request(replace(request, request_id=name, sampling=GREEDY))
        while engine.has_work():
            for delta in engine.step().deltas:
                found[delta.request_id][0].extend(delta.token_ids)
        engine.core.check()
        held = sum(packed.data.nbytes for packed in adapters)
        return {name: (tokens, torch.stack(logits)) for name, (tokens, logits) in found.items()}, held
    finally:
        if leader is not None:
            leader.close()


def by_engines(
    case: Case, kinds: Sequence[tuple[int, str]], graphs: bool, **settings: Any
) -> list[tuple[Answers, int]]:
    """Of ranks and layouts, at the same time; those of several GPUs one after another."""
    run = partial(answers, case, graphs=graphs, settings=settings)
    with ProcessPoolExecutor(len(kinds) if not graphs else 1, get_context("spawn")) as processes:
        futures = [processes.submit(run, ranks, sharding) for ranks, sharding in kinds]
        return [future.result() for future in futures]


def assert_equal(found: Answers, expected: Answers) -> None:
    """Logits as long as the tokens before them are the same, of answers that have some; nearly all to their end."""
    compared, whole = 0, 0
    for name, (tokens, logits) in found.items():
        want_tokens, want = expected[name]
        same = next((i for i, pair in enumerate(zip(tokens, want_tokens, strict=True)) if pair[0] != pair[1]), NEW)
        rows = min(same + 1, NEW)
        error = (logits[:rows] - want[:rows]).norm(dim=-1) / want[:rows].norm(dim=-1).clamp(min=1e-9)
        assert float(error.max()) < 1e-4, (name, error)
        compared, whole = compared + 1, whole + (same == NEW)
    assert whole >= compared - 1, f"{compared - whole} of {compared} answers turned"


def test_two_ranks_on_one_gpu_give_the_logits_of_one(case: Case) -> None:
    """With the same kernels as on two; without NCCL, and so without graphs."""
    (alone, whole), (outer, outer_bytes), (full, full_bytes) = by_engines(
        case, [(1, "auto"), (2, "outer"), (2, "full")], graphs=False
    )
    assert_equal(outer, alone)
    assert_equal(full, alone)
    assert full_bytes < outer_bytes < whole
    print(f"adapters' bytes on a rank: alone {whole}, outer {outer_bytes}, full {full_bytes}")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("small_sum_kb", [0, 512], ids=["nccl", "symmetric memory"])
def test_several_gpus_give_the_logits_of_one(case: Case, small_sum_kb: int) -> None:
    """With sums inside of captured graphs."""
    counts = [count for count in (2, 4) if count <= torch.cuda.device_count()]
    kinds = [(1, "auto"), *((count, sharding) for count in counts for sharding in ("outer", "full"))]
    (alone, _), *others = by_engines(case, kinds, graphs=True, small_sum_kb=small_sum_kb)
    for found, _ in others:
        assert_equal(found, alone)
