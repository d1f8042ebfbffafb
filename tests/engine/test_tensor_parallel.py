"""Two and four ranks, each with its share of the base model, the pool and the adapters, give the tokens of one."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
from lorikeet_testing import interpreted  # noqa: F401
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
from safetensors.torch import load_file, save_file

from lora_engine.adapters.packing import PoolPacker
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.model.loading import base_embedding_layers, load_model
from lora_engine.model.parallel import Parallel
from lora_engine.peft_format import AdapterLimits
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.tensor_parallel.leader import Leader
from lora_engine.tensor_parallel.stillness import STILL_BEATS, Stillness
from lora_kernels import attention
from lora_kernels.fp8_tensors import quantise
from lora_kernels.kernel_variants import SHRINK, SPLIT_K, KernelVariant, SplitK

Tokens = dict[str, list[int]]
WHOLE = "dora-r6"  # whose norms are of whole rows: refused where the base model is split


def workload(adapters: dict[str, Adapter], count: int = 18) -> list[GenerationRequest]:
    """Every adapter and the base, greedy and sampled, with prompts longer than a step; some begin alike."""
    rnd = random.Random(7)
    common = [rnd.randrange(VOCAB) for _ in range(90)]
    requests = []
    for index in range(count):
        name = ["", *adapters][index % (1 + len(adapters))]
        new = 8 if count == 18 else 3
        sampling = SamplingParams(max_tokens=new, ignore_eos=True, temperature=0.9 * (index % 3 == 2), seed=index)
        length = rnd.choice((1, 9, 40, 90)) if count == 18 else 3 + 2 * index
        alike = length // 2 if index % 2 else 0
        prompt = common[:alike] + [rnd.randrange(VOCAB) for _ in range(length - alike)]
        digest = adapters[name].digest if name else ""
        requests.append(GenerationRequest(f"r{index}", prompt, sampling, digest))
    return requests


class Ran(NamedTuple):
    """Tokens by request; adapters' bytes on this rank; of each step, which pages whose sequences and adapters had."""

    tokens: Tokens
    held: int
    pages: str


def generate(
    model: Path,
    adapters: dict[str, Adapter],
    parallel: Parallel,
    sharding: str = "auto",
    requests: int = 18,
    **settings: Any,
) -> Ran:
    """As one rank that plans by itself, and so has to agree with the others. Free pages are full of NaN."""
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
    tokens: Tokens = {}
    for request in workload(adapters, requests):
        tokens[request.request_id] = []
        engine.add_request(request)
    pages = hashlib.sha256()
    while engine.has_work():
        for delta in engine.step().deltas:
            tokens[delta.request_id] += delta.token_ids
        engine.core.check()
        pages.update(str([sequence.pages for sequence in engine.core.scheduler.running]).encode())
        pages.update(str([(slot.digest, slot.pages) for slot in engine.core.device_tier.slots()]).encode())
    assert all(len(found) == len(tokens["r0"]) for found in tokens.values())
    return Ran(tokens, held, pages.hexdigest())


@dataclass(frozen=True)
class Case:
    """A family's model and adapters in a folder of their own."""

    folder: Path
    adapters: dict[str, Adapter]

    @property
    def model(self) -> Path:
        return self.folder / "model"


def make_case(folder: Path, family: str, names: Sequence[str] = (), **shape: Any) -> Case:
    """With the adapters that are named, or all and one that changes the embedding and the head."""
    reference = save_model(family, folder / "model", **{"intermediate_size": 152, **shape})
    adapters = {
        name: adapter_at(name, save_adapter(name, reference, folder / name))
        for name in names or [name for name in ADAPTERS if name != WHOLE]
    }
    if names:
        return Case(folder, adapters)
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


@dataclass(frozen=True)
class Run:
    """A case with some settings of the engine."""

    case: Case
    settings: dict[str, Any]

    def generate(self, parallel: Parallel, **others: Any) -> Ran:
        return generate(self.case.model, self.case.adapters, parallel, **{**self.settings, **others})


def run_rank(rank: int, world: int, folder: Path, runs: list[Run]) -> None:
    torch.set_num_threads(1)
    # Every program takes the interpreter as long, whatever it does.
    attention.FEW = 8
    for variant in (KernelVariant.GEMV_1, KernelVariant.GEMV_2):
        SHRINK[variant], SPLIT_K[variant] = replace(SHRINK[variant], rows=16), SplitK(256)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    try:
        found = [run.generate(Parallel(rank, world, dist.group.WORLD)) for run in runs]
        torch.save(found, folder / f"{rank}.pt")
        dist.barrier()  # gloo aborts a process whose peer ends while they still talk
    finally:
        dist.destroy_process_group()


def on_ranks(world: int, folder: Path, runs: list[Run]) -> list[list[Ran]]:
    """What each rank found of each run, run by run. One start of the ranks for all: it takes longer than they run."""
    torch.multiprocessing.spawn(run_rank, (world, folder, runs), nprocs=world)
    return list(zip(*(torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(world)), strict=True))


@pytest.mark.parametrize(
    ("world", "families"),
    [
        (2, ["llama2-mha", "llama-biases", "qwen2-qkv-bias"]),
        (4, ["llama2-mha", "llama3-scaled-rope-tied"]),
        pytest.param(2, ["gemma3-two-ropes", "cohere2-parallel"], marks=pytest.mark.long),
    ],
    ids=str,
)
def test_ranks_give_the_tokens_of_one(tmp_path: Path, world: int, families: list[str]) -> None:
    # Of each vocabulary but the first, the last rank has fewer tokens.
    heads = {"num_key_value_heads": 4} if world == 4 else {}
    cases = [make_case(tmp_path / f, f, vocab_size=VOCAB + index, **heads) for index, f in enumerate(families)]
    runs = [Run(case, {"sharding": sharding}) for case in cases for sharding in ("outer", "full")]
    found = on_ranks(world, tmp_path, runs)
    for case, outer, full in zip(cases, found[::2], found[1::2], strict=True):
        alone = generate(case.model, case.adapters, Parallel())
        for ranks in (outer, full):
            assert [ran.tokens for ran in ranks] == [alone.tokens] * world, case.folder.name
            assert len({ran.pages for ran in ranks}) == 1, "pages are the same on all ranks"
        assert full[0].held < outer[0].held < alone.held


def test_whatever_else_an_engine_is_set_to(tmp_path: Path) -> None:
    """Rows computed one by one, weights in FP8, keys and values in FP8, and the kernels, in Triton's interpreter."""
    sizes = {"hidden_size": 64, "head_dim": 16, "intermediate_size": 128, "num_hidden_layers": 2}
    few = ("all-linear-r16-rslora", "mlp-r5", "v-only-r1", "lora-bias-r4")
    plain = make_case(tmp_path / "plain", "llama2-mha", few, **sizes)
    in_fp8(plain, tmp_path / "fp8")
    quantised = Case(tmp_path / "fp8", plain.adapters)
    runs = []
    for sharding in ("outer", "full"):
        runs += [
            Run(plain, {"sharding": sharding, "requests": 6, "deterministic": True}),
            Run(quantised, {"sharding": sharding, "requests": 6}),
            Run(plain, {"sharding": sharding, "requests": 6, "kv_cache_dtype": "fp8"}),
        ]
    runs.append(Run(plain, {"sharding": "full", "requests": 2, "backend": "triton"}))
    for run, ranks in zip(runs, on_ranks(2, tmp_path, runs), strict=True):
        alone = run.generate(Parallel(), backend="torch")
        assert [ran.tokens for ran in ranks] == [alone.tokens] * 2, run.settings
        assert ranks[0].pages == ranks[1].pages and ranks[0].held < alone.held


def in_fp8(case: Case, folder: Path) -> None:
    """A copy of the model whose layers' matrices are in FP8, with a scale for each output."""
    shutil.copytree(case.model, folder / "model")
    config = json.loads((case.model / "config.json").read_text())
    of_weights = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel", "dynamic": False}
    of_inputs = {**of_weights, "strategy": "token", "dynamic": True}
    group = {"targets": ["Linear"], "weights": of_weights, "input_activations": of_inputs, "output_activations": None}
    config["quantization_config"] = {
        "quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed",
        "ignore": ["lm_head"], "kv_cache_scheme": None, "config_groups": {"group_0": group},
    }  # fmt: skip
    (folder / "model" / "config.json").write_text(json.dumps(config))
    tensors: dict[str, torch.Tensor] = {}
    for name, weight in load_file(case.model / "model.safetensors").items():
        if "layers" in name and weight.dim() == 2:
            matrix = quantise(weight)
            tensors[f"{name}_scale"], weight = matrix.scale[:, None].contiguous(), matrix.data
        tensors[name] = weight
    save_file(tensors, folder / "model" / "model.safetensors", metadata={"format": "pt"})


def test_a_model_that_cannot_be_split_is_refused(tmp_path: Path) -> None:
    save_model("llama2-mha", tmp_path / "model")
    with pytest.raises(ValueError, match="cannot be split over 3 tensor-parallel ranks"):
        load_model(EngineConfig(model=tmp_path / "model", pool_mb=2), Parallel(0, 3))


@pytest.mark.parametrize("family", ["phi3-fused", "glm-partial-interleaved", "olmo2-norms-after"])
def test_families_that_cannot_be_split_are_refused(tmp_path: Path, family: str) -> None:
    save_model(family, tmp_path / "model", intermediate_size=152)
    with pytest.raises(ValueError, match="cannot be split over tensor-parallel ranks"):
        load_model(EngineConfig(model=tmp_path / "model", pool_mb=2), Parallel(0, 2))


LEAVES = """
import sys
from pathlib import Path
from lora_engine.config import EngineConfig
from lora_engine.model.loading import load_model
from lora_engine.tensor_parallel.leader import Leader

if __name__ == "__main__":
    config = EngineConfig(model=Path(sys.argv[1]), pool_mb=16, threads=1, tensor_parallel=2, dtype="float32")
    leader = Leader(config)
    load_model(leader.config, leader.join())
    print([rank.process.pid for rank in leader._ranks])
"""


def test_a_program_that_just_ends_does_not_wait_for_its_ranks(tmp_path: Path) -> None:
    """As benchmarks do; a rank ignores the signal by which multiprocessing ends its children."""
    (tmp_path / "leaves.py").write_text(LEAVES)
    command = [sys.executable, str(tmp_path / "leaves.py"), str(Path(__file__).parents[2] / "demo" / "model")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    (rank,) = json.loads(done.stdout)
    assert not Path(f"/proc/{rank}").exists()


FAILS = """
import sys
from pathlib import Path
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.model.loading import load_model
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.tensor_parallel.leader import Leader


def load(config, parallel):
    loaded = load_model(config, parallel)
    if parallel.rank == int(sys.argv[2]):
        def hidden(*arguments):
            raise RuntimeError("its device is gone")
        loaded.model.hidden = hidden
    return loaded


if __name__ == "__main__":
    config = EngineConfig(model=Path(sys.argv[1]), pool_mb=16, threads=1, tensor_parallel=2, dtype="float32")
    leader = Leader(config, load)
    engine = Engine(leader.config, LoadedAdapters(), load(leader.config, leader.join()), mirror=leader)
    engine.add_request(GenerationRequest("r", [1, 2, 3], SamplingParams(max_tokens=4)))
    print([rank.process.pid for rank in leader._ranks], flush=True)
    while engine.has_work():
        engine.step()
"""


def test_a_rank_that_fails_in_a_step_ends_all_with_its_reason(tmp_path: Path) -> None:
    """Within seconds, though the other one waits for it in the midst of a sum."""
    (tmp_path / "fails.py").write_text(FAILS)
    command = [sys.executable, str(tmp_path / "fails.py"), str(Path(__file__).parents[2] / "demo" / "model")]
    running = [subprocess.Popen([*command, rank], text=True, stdout=-1, stderr=-1) for rank in "01"]
    for number, process in enumerate(running):
        out, errors = process.communicate(timeout=100)
        assert process.returncode == 70, errors
        who = "rank 1 failed: " if number else "rank 0 failed in a step that the other ranks began: "
        assert who in errors and "its device is gone" in errors
        (rank,) = json.loads(out)
        assert not Path(f"/proc/{rank}").exists() or not Path(f"/proc/{rank}/cmdline").read_text()


STANDS = """
import os
import signal
import sys
import time
from pathlib import Path
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.model.loading import load_model
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.tensor_parallel.leader import Leader

WAY, RANK = sys.argv[2], int(sys.argv[3])


def load(config, parallel):
    loaded = load_model(config, parallel)
    whole = loaded.model.hidden
    steps = []

    def hidden(*arguments):
        steps.append(1)
        if len(steps) == 3:
            print(time.monotonic(), file=sys.stderr, flush=True)
            if WAY == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            while WAY == "busy":
                pass
            with parallel.exchanges:
                time.sleep(1000)
        return whole(*arguments)

    if parallel.rank == RANK:
        loaded.model.hidden = hidden
    return loaded


if __name__ == "__main__":
    config = EngineConfig(model=Path(sys.argv[1]), pool_mb=16, threads=1, tensor_parallel=2, dtype="float32")
    leader = Leader(config, load)
    engine = Engine(leader.config, LoadedAdapters(), load(leader.config, leader.join()), mirror=leader)
    engine.add_request(GenerationRequest("r", [1, 2, 3], SamplingParams(max_tokens=40)))
    print([rank.process.pid for rank in leader._ranks], flush=True)
    while engine.has_work():
        engine.step()
"""
STANDS_STILL = {
    "stopped 1": "has not answered for 6 s",
    "busy 1": "has stood still for 6 s within a step",
    "in an exchange 1": "an exchange between all ranks has not ended for 6 s within a step",
    "stopped 0": "Rank 0 has not answered for 6 s: it is ended",
    "busy 0": "rank 0 .* has stood still for 6 s within a step",
}


@pytest.mark.parametrize(
    "ways", [["stopped 1", "busy 1"], pytest.param([*STANDS_STILL], marks=pytest.mark.long)], ids=len
)
def test_a_rank_that_stands_still_within_a_step_ends_all_in_ten_seconds(tmp_path: Path, ways: list[str]) -> None:
    (tmp_path / "stands.py").write_text(STANDS)
    command = [sys.executable, str(tmp_path / "stands.py"), str(Path(__file__).parents[2] / "demo" / "model")]
    running = {
        way: subprocess.Popen([*command, *way.rsplit(" ", 1)], text=True, stdout=-1, stderr=(tmp_path / way).open("w"))
        for way in ways
    }
    ended = {}
    until = time.monotonic() + 100
    while len(ended) < len(running) and time.monotonic() < until:
        ended |= {way: time.monotonic() for way, at in running.items() if way not in ended and at.poll() is not None}
        time.sleep(0.05)
    for way, process in running.items():
        errors = (tmp_path / way).read_text()
        assert process.poll() == (-9 if way == "stopped 0" else 70), errors
        assert re.search(STANDS_STILL[way], errors), errors
        stood_at = float(next(line for line in errors.splitlines() if re.fullmatch(r"[0-9.]+", line)))
        assert ended[way] - stood_at <= 10, errors
        (rank,) = json.loads(process.communicate()[0])
        assert not Path(f"/proc/{rank}").exists() or not Path(f"/proc/{rank}/cmdline").read_text()


def test_who_stands_still_is_the_one_that_others_wait_for() -> None:
    stillness = Stillness()
    idle = [stillness.beat([(5, 5), (5, 5), (5, 5)]) for _ in range(50)]
    moving = [stillness.beat([(n, n - 1), (n, n), (n - 1, n - 1)]) for n in range(6, 50)]
    behind = [stillness.beat([(50, 49), (50, 49), (49, 49)]) for _ in range(STILL_BEATS + 1)]
    assert {*idle, *moving, *behind[:-1]} == {None} and behind[-1] == 2 and not stillness.all_wait
    together = [stillness.beat([(51, 50)] * 3) for _ in range(STILL_BEATS + 1)]
    assert together[-2:] == [None, 0] and stillness.all_wait


@pytest.mark.long
def test_the_embedding_layers_of_an_adapter_are_the_same_with_a_rank_that_follows(tmp_path: Path) -> None:
    """Rank 0 plans, and tells the other one whose embeddings its rows have; only rank 0 has heads."""
    case = make_case(tmp_path, "llama2-mha")
    adapters = {name: case.adapters[name] for name in ("embedding_layers", "attention-r8")}
    alone = generate(case.model, adapters, Parallel()).tokens
    config = EngineConfig(
        model=case.model, pool_mb=2, page_tokens=4, step_tokens=64, threads=2, tensor_parallel=2, max_lora_rank=16
    )
    leader = Leader(config)
    try:
        source = LoadedAdapters()
        engine = Engine(leader.config, source, load_model(leader.config, leader.join()), mirror=leader)
        memory = leader.host_memory(pinned=False)
        packer = PoolPacker(
            geometry_of(engine), AdapterLimits(), engine.pool.geometry, engine.targets, engine.pool.data.dtype, memory,
            base_embedding_layers(leader.config, engine.loaded),
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
