"""W7: one model over the GPUs of a machine. All of it in one call of less than `--minutes`.

    python benchmarks/tensor_parallel.py --out benchmarks/results/w7.jsonl [--only sums ...] [--minutes 9]
    python benchmarks/tensor_parallel.py --try-out    # whether the script runs: a tiny model on CPUs

On all GPUs of the machine (2 or 4), and for comparison on one, each of these in its own processes, the most wanted
first; what no time is left for is named at the end:

- `sums`: a sum over the ranks and the norm behind it, for the sizes of steps, in a CUDA graph: by NCCL, by one kernel
  over symmetric memory, and added up by the norm's kernel.
- `8b`: requests per second and decode steps of the Llama-3.1-8B shape, base, 64 mixed and 1,000 adapters drawn
  uniformly (ranks 8/16/32/64 on q,k,v,o), at 256 running for each GPU; adapters' outer factors split.
- `8b alone`: the same on one GPU.
- `8b unfused`: the same as `8b` with sums by other kernels than the norms'.
- `70b fp8`, `70b`: decode steps of the 70B shape beside their floor, with weights in FP8, and in bfloat16 if that fits.
- `8b full`, `70b full`: steps with both factors split, and again without what LoRA exchanges.

Random weights; prompts of 256 tokens. The floor of a step is rank 0's, without its sums, as `step_times.py` counts it:
the base's products (bytes or operations, whichever take longer), keys and values, its part of the adapters. Graphs are
captured when they are used, which counts for nothing. All adapters of a rank (of LoRA) have the same weights in host
memory: the device copies each by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing
from offline_throughput import CASES, MIXED, MIXERS, MODELS, Case, capture_when_used, random_model
from rows import Rows, parser_of
from step_times import PROMPT, decode_step_ms, fitting, floors_ms, run, warm

from lora_engine.adapters.host_memory import HostMemory, PageableMemory, PinnedSlabs
from lora_engine.adapters.layout import PackedAdapter, plan_layout
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.execution.graph_set import GraphSet
from lora_engine.garbage import freeze_loaded_objects
from lora_engine.model.loading import LoadedModel
from lora_engine.model.lora_exchange import LoraExchange
from lora_engine.model.parallel import Exchanges, Parallel, PartialSum
from lora_engine.peft_format import AdapterManifest, ModuleLora
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.tensor_parallel import group
from lora_engine.tensor_parallel.leader import Leader
from lora_kernels.elementwise import add_norm

GPU = torch.cuda.is_available()
MODELS["tiny"] = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 512, "max_position_embeddings": 2048,
}  # fmt: skip
ROWS = (1, 4, 16, 64, 128, 256, 512, 1024, 4096)  # of sums over hidden states of 4,096
_SHARE = 0.5  # of the pool, at most for adapters of one step
COUNTS = {"base": 0, "64 mixed": 64, "1000 uniform": 1000}


@dataclass(frozen=True)
class Job:
    """A part of the benchmark.

    ``least_s``: it is not begun with less time left. ``silent``: LoRA exchanges nothing, and gives wrong answers.
    ``batches``: numbers of running sequences, () = 256 for each GPU. ``fused``: norms add up the sums before them.
    """

    name: str
    kind: str  # "sums" | "engine"
    model: str = ""
    alone: bool = False
    sharding: str = "outer"
    throughput: bool = False
    silent: bool = False
    fused: bool = True
    quantization: str = "auto"
    batches: tuple[int, ...] = ()
    least_s: int = 40

    @property
    def fits(self) -> bool:
        """Return whether the weights fit into the GPUs with room for a pool."""
        if "70b" not in self.model or not GPU:
            return True
        weights = 70.6e9 * (1 if self.quantization == "fp8" else 2)
        return weights < 0.8 * ranks_here() * torch.cuda.mem_get_info()[1]


JOBS = (
    Job("sums", "sums", least_s=15),
    Job("8b", "engine", "llama-3.1-8b", throughput=True),
    Job("8b alone", "engine", "llama-3.1-8b", alone=True, throughput=True),
    Job("8b unfused", "engine", "llama-3.1-8b", throughput=True, fused=False),
    Job("70b fp8", "engine", "llama-3.1-70b", quantization="fp8", batches=(64, 192)),
    Job("70b fp8 unfused", "engine", "llama-3.1-70b", quantization="fp8", batches=(64, 192), fused=False),
    Job("70b", "engine", "llama-3.1-70b", batches=(64, 192)),
    Job("8b full", "engine", "llama-3.1-8b", sharding="full", throughput=True),
    Job("8b full", "engine", "llama-3.1-8b", sharding="full", silent=True),
    Job("70b full", "engine", "llama-3.1-70b", quantization="fp8", sharding="full", batches=(192,)),
    Job("70b full", "engine", "llama-3.1-70b", quantization="fp8", sharding="full", batches=(192,), silent=True),
)


def ranks_here() -> int:
    return max((n for n in (2, 4, 8) if n <= torch.cuda.device_count()), default=0) if GPU else 2


# Sums.


def time_sums(rank: int, world: int, place: Path, times: Path) -> None:
    """Time sums over the ranks and the norms behind them, on one rank."""
    config = EngineConfig(model=Path("random"), device="cuda" if GPU else "cpu", tensor_parallel=world)
    config = replace(config, small_sum_kb=8192)
    meeting = group.Meeting(place)
    rank_config = group.config_of(config, rank, meeting)
    joined = group.join(rank_config, rank, meeting, Exchanges())
    kinds = {"nccl" if GPU else "gloo": replace(joined, small=None, shared=None)}
    if joined.small is not None and joined.shared is not None:
        kinds |= {"symmetric": replace(joined, shared=None), "fused with the norm": joined}
    lines = []
    for rows in ROWS:
        residual = torch.zeros(rows, 4096, dtype=torch.bfloat16, device=rank_config.device)
        for name, parallel in kinds.items():
            takes = name != "symmetric" or (parallel.small is not None and parallel.small.takes(residual))
            if takes and (parallel.shared is None or parallel.addend(*residual.shape, residual.dtype) is not None):
                lines.append((rows, name, microseconds(parallel, residual)))
    if rank == 0:
        times.write_text(json.dumps(lines))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def microseconds(parallel: Parallel, residual: torch.Tensor, inside: int = 20, times: int = 20) -> float:
    """Return the time of one sum and its norm among ``inside`` of a graph, as in decode steps."""
    weight, out, x = torch.ones(4096, dtype=residual.dtype), torch.empty_like(residual), torch.zeros_like(residual)
    weight = weight.to(residual.device)

    def sums() -> None:
        for _ in range(inside):
            place = parallel.addend(*residual.shape, residual.dtype)
            total = parallel.sum(x if place is None else place)
            if GPU and isinstance(total, PartialSum):
                add_norm(total.addend, residual, weight, 1e-5, out, addends=total.addresses)
            elif GPU:
                add_norm(total, residual, weight, 1e-5, out)

    if not residual.is_cuda:
        began = time.perf_counter()
        sums()
        return (time.perf_counter() - began) / inside * 1e6
    sums()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        sums()
    graph.replay()
    torch.cuda.synchronize()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(times):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / (inside * times) * 1e3


def run_sums(out: Path | None) -> None:
    world = ranks_here()
    rows = Rows(out, "W7", "sums", gpus=world)
    with tempfile.TemporaryDirectory() as folder:
        place, times = Path(folder) / "meet", Path(folder) / "found"
        torch.multiprocessing.spawn(time_sums, (world, place, times), nprocs=world)
        for tokens, system, value in json.loads(times.read_text()):
            settings = {"ranks": world, "bytes": tokens * 4096 * 2}
            rows.add(f"sum and norm of {tokens} rows", "us", value, "us", None, system, settings)


# Engines.


def silent_model(config: EngineConfig, parallel: Parallel) -> LoadedModel:
    """A rank that exchanges nothing between LoRA's two products."""

    def shrunk(exchange: LoraExchange, group: int, shard: torch.Tensor) -> torch.Tensor:
        return shard.expand(exchange.shards(group), *shard.shape).contiguous()

    LoraExchange.shrunk = shrunk  # type: ignore[method-assign]
    return random_model(config, parallel)


def start(job: Job, ranks: int, running: int) -> tuple[Engine, LoadedAdapters, HostMemory]:
    source = LoadedAdapters()
    config = EngineConfig(
        model=Path("random"), model_name=job.model, device="cuda" if GPU else "cpu", max_context=2048,
        max_running=running, step_tokens=4096, prefix_cache=False, tensor_parallel=ranks, lora_sharding=job.sharding,
        max_lora_rank=64, threads=0 if GPU else 1, pool_mb=0 if GPU else 64, quantization=job.quantization,
    )  # fmt: skip
    if not job.fused:
        config = replace(config, fused_sum_mb=0)
    time_captures()
    load: Callable[[EngineConfig, Parallel], LoadedModel] = silent_model if job.silent else random_model
    if ranks == 1:
        return Engine(config, source, load(config, Parallel())), source, PinnedSlabs() if GPU else PageableMemory()
    leader = Leader(config, load)
    loaded = load(leader.config, leader.join())
    return Engine(leader.config, source, loaded, mirror=leader), source, leader.host_memory(pinned=GPU)


_capturing_s = 0.0


def time_captures() -> None:
    """Capture graphs when they are used: requests per second count no time in which one was captured."""
    add = GraphSet._add

    def timed(graphs: GraphSet[Any], shape: Any) -> bool:
        global _capturing_s
        began = time.perf_counter()
        try:
            return add(graphs, shape)
        finally:
            _capturing_s += time.perf_counter() - began

    GraphSet._add = timed  # type: ignore[method-assign]
    capture_when_used()


def adapters(engine: Engine, memory: HostMemory, count: int) -> list[PackedAdapter]:
    """Return adapters of alternating ranks; those of one rank share their bytes in host memory."""
    geometry, of_rank = engine.pool.geometry, {}
    for rank in MIXED:
        modules = tuple(
            ModuleLora(layer, target, rank, 16.0, 16.0 / rank, "a", "b")
            for layer in range(geometry.num_layers)
            for target in engine.loaded.model.shape.targets_of(layer)
            if target in MIXERS
        )
        manifest = AdapterManifest(rank, MIXERS, "BF16", 0, 0, 0, "random", modules, {})
        layout = plan_layout(manifest, geometry, engine.targets)
        shape = (engine.targets.world, geometry.num_layers, layout.num_pages, geometry.page_elems)
        data = memory.zeros(shape, engine.pool.data.dtype)
        noise = torch.randn(1 << 20).mul_(0.01).to(data.dtype)
        flat = data.view(-1)
        for first in range(0, flat.numel(), noise.numel()):
            flat[first : first + noise.numel()] = noise[: flat.numel() - first]
        of_rank[rank] = PackedAdapter("", rank, layout, data[0], data)
    return [replace(of_rank[MIXED[i % len(MIXED)]], digest=f"sha256:{i:064x}") for i in range(count)]


def requests_per_s(engine: Engine, case: Case, digests: list[str], requests: int, new: int) -> float:
    rnd, params = random.Random(case.name), SamplingParams(max_tokens=new, ignore_eos=True)
    for index in range(requests):
        digest = (rnd.choice(digests) if case.uniform else digests[index % len(digests)]) if digests else ""
        prompt = [rnd.randrange(engine.model_config.vocab_size) for _ in range(PROMPT)]
        engine.add_request(GenerationRequest(f"{case.name}-{index}", prompt, params, digest))
    began, captured = time.perf_counter(), _capturing_s
    run(engine)
    return requests / (time.perf_counter() - began - (_capturing_s - captured))


def run_engine(job: Job, out: Path | None) -> None:
    ranks = 1 if job.alone else ranks_here()
    batches = (job.batches or (256 * ranks,)) if GPU else (8,)
    batch = max(batches)
    engine, source, memory = start(job, ranks, batch)
    freeze_loaded_objects()  # as the engine's process does
    packed = adapters(engine, memory, max(COUNTS.values()) if GPU else 80)
    for one in packed:
        source.add(one)
    system = f"lorikeet, {ranks} ranks, {job.sharding}" + (", LoRA silent" if job.silent else "")
    system += ("" if job.fused else ", unfused sums") + (", FP8" if job.quantization == "fp8" else "")
    rows = Rows(
        out, "W7", job.model, gpus=ranks, ranks=ranks, sharding=job.sharding, silent=job.silent, fused=job.fused,
        quantization=job.quantization,
    )  # fmt: skip
    rows.add("adapter of rank 64", "bytes", packed[3].data.nbytes / 2**20, "MiB", None, system)
    most = int(_SHARE * engine.pool.num_pages / (sum(one.num_pages for one in packed) / len(packed)))
    for name, count in COUNTS.items():
        mine = packed[: min(count, batch, most)]  # of a step; all distinct, where there are more
        digests = [one.digest for one in mine]
        warm(engine, digests)
        for running in batches:
            size = fitting(engine, running)
            value = decode_step_ms(engine, name, size, digests[:size])
            floor, of_bytes = floors_ms(engine, mine[:size], size)
            settings = {"batch": size, "distinct": len(mine[:size]), "bytes_ms": round(of_bytes, 3)}
            rows.add(name, "step_ms", value, "ms", floor, system, settings)
    if job.throughput:
        requests, new = (600 * ranks, 128) if GPU else (16, 4)
        for name, count in COUNTS.items():
            case = CASES.get(name, Case(name, count))
            requests_per_s(engine, case, [one.digest for one in packed[:count]], batch, 16)  # kernels, graphs
            value = requests_per_s(engine, case, [one.digest for one in packed[:count]], requests, new)
            rows.add(name, "requests_per_s", value, "1/s", None, system, {"requests": requests, "running": batch})


# All of them.


def main() -> None:
    parser = parser_of(__doc__, out=True)
    parser.add_argument("--only", nargs="*", choices=sorted({job.name for job in JOBS}))
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--try-out", action="store_true")
    parser.add_argument("--job", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job is not None:
        job = JOBS[arguments.job]
        job = job if GPU or job.kind == "sums" else replace(job, model="tiny")
        run_sums(arguments.out) if job.kind == "sums" else run_engine(job, arguments.out)
        sys.stdout.flush()
        os._exit(0)  # as the engine's process does: NCCL would wait for the graphs that have its sums
    if ranks_here() < 2 or (arguments.try_out and GPU) or not (arguments.try_out or GPU):
        parser.error("this needs two GPUs; --try-out is for a machine without any")
    until, left_out = time.monotonic() + 60 * arguments.minutes - 10, []
    for index, job in enumerate(JOBS):
        left = until - time.monotonic()
        what = f"{job.name}{', LoRA silent' if job.silent else ''}"
        if (arguments.only and job.name not in arguments.only) or (arguments.try_out and "70b" in job.name):
            continue
        if not job.fits:
            left_out.append(f"{what} (does not fit)")
            continue
        if left < job.least_s:
            left_out.append(what)
            continue
        print(f"== {what}, {left:.0f} s left", flush=True)
        command = [sys.executable, __file__, "--job", str(index), *(["--out", arguments.out] if arguments.out else [])]
        try:
            if status := subprocess.run(command, timeout=left).returncode:
                left_out.append(f"{what} (ended with {status})")
        except subprocess.TimeoutExpired:
            left_out.append(f"{what} (cut off)")
    print(f"left out: {', '.join(left_out) or 'nothing'}")
    sys.exit(1 if any("ended" in what for what in left_out) else 0)


if __name__ == "__main__":
    main()
