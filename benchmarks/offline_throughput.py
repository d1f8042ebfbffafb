"""W1: offline throughput of one GPU, requests per second by number of adapters.

    python benchmarks/offline_throughput.py --out benchmarks/results/w1.jsonl [--model llama-3.1-8b] [--cases ...]
    python benchmarks/offline_throughput.py --lora-off --cases "base lora off" --out ...

Random weights, 1000 requests of 256 tokens in and 128 out, greedy, no end token, at most 256
running, no prefix cache; adapters on q,k,v,o with ranks 8/16/32/64 round-robin, all in host
memory at the start. Correctness has its own tests; this measures. `--lora-off` takes every trace of LoRA out
of the forward pass, to see what having it costs traffic that does not use it.
"""

from __future__ import annotations

import logging
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import model_shapes
import torch
from rows import Rows, parser_of
from tokenizers import Tokenizer as HfTokenizer
from tokenizers import decoders, models, pre_tokenizers

from lora_engine.adapters.host_memory import HostMemory, PinnedSlabs
from lora_engine.adapters.layout import PackedAdapter, plan_layout
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.execution.graph_runner import GraphRunner
from lora_engine.execution.graph_set import GraphSet
from lora_engine.model.config import ModelConfig
from lora_engine.model.loading import (
    LoadedModel,
    build_pool,
    build_transformer,
    choose_dtype,
    fp8_adapters,
    quantises,
    target_shapes,
)
from lora_engine.model.parallel import Parallel
from lora_engine.model.triton_ops import TritonOps
from lora_engine.model.weight_loading import random_weights
from lora_engine.peft_format import DOWN, GATE_UP, AdapterManifest, ExpertFactor, ExpertLora, FactorForm, ModuleLora
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.tensor_parallel.leader import Leader
from lora_engine.text import Tokenizer
from lora_kernels.fp8_tensors import FP8

# No longer contexts are measured.
MAX_POSITION = 32768
MODELS = {title.lower(): dict(shape) for title, shape in model_shapes.MODELS.items()}
for _shape in MODELS.values():
    _shape["max_position_embeddings"] = min(_shape.get("max_position_embeddings", MAX_POSITION), MAX_POSITION)
MODELS["gpt-oss-20b-bf16"] = MODELS["gpt-oss-20b"] | {"quantization_config": None}
LLAMA_3_1_8B = MODELS["llama-3.1-8b"]
# The projections of attention, or of the gated delta rule, in layers that have it.
MIXERS = (
    "q_proj", "k_proj", "v_proj", "o_proj", "in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj",
)  # fmt: skip
ALL_LINEAR = (*MIXERS, "gate_proj", "up_proj", "down_proj")
MIXED = (8, 16, 32, 64)


@dataclass(frozen=True)
class Case:
    """A workload of ``adapters`` distinct adapters, requests round-robin ("mixed") or drawn uniformly."""

    name: str
    adapters: int
    ranks: tuple[int, ...] = MIXED
    targets: tuple[str, ...] = MIXERS
    uniform: bool = False


CASES = {
    case.name: case
    for case in (
        Case("base lora off", 0),
        Case("base lora on", 0),
        Case("1 adapter", 1),
        Case("4 mixed", 4),
        Case("8 mixed", 8),
        Case("32 mixed", 32),
        Case("64 mixed", 64),
        Case("256 uniform", 256, uniform=True),
        Case("1000 uniform", 1000, uniform=True),
        Case("1000 uniform r8", 1000, (8,), uniform=True),
        Case("2000 r8/r16", 2000, (8, 16)),
        Case("4000 uniform r8", 4000, (8,), uniform=True),
        Case("64 mixed all-linear", 64, targets=ALL_LINEAR),
        Case("64 r128", 64, (128,)),
    )
}


def tokenizer_folder(vocab_size: int) -> Path:
    """Write a byte-level tokenizer of the right size: detokenisation is part of the measurement."""
    folder = Path(tempfile.mkdtemp())
    vocab = {symbol: index for index, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocab |= {f"word{index}": index for index in range(len(vocab), vocab_size)}
    tokenizer = HfTokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text("{}")
    return folder


def random_model(config: EngineConfig, parallel: Parallel) -> LoadedModel:
    """Return one rank of the model that ``config`` names, with random weights."""
    model_config, device = ModelConfig.from_dict(MODELS[config.model_name]), torch.device(config.device)
    dtype = choose_dtype(config.dtype, device)
    weights = random_weights(model_config, device, dtype, parallel, quantised=quantises(config))
    max_context = config.max_context or model_config.max_position
    model, tables = build_transformer(config, model_config, weights, max_context, parallel)
    return LoadedModel(
        config.model_name, "sha256:random", str(device), model,
        Tokenizer.load(tokenizer_folder(model_config.vocab_size)), build_pool(config, model, max_context),
        target_shapes(config, model_config, parallel), max_context, tables, fp8_adapters(config),
    )  # fmt: skip


def build_engine(name: str, config: EngineConfig, source: LoadedAdapters) -> Engine:
    """Build an engine over ``config.tensor_parallel`` devices; the other ranks end with this process."""
    global _memory
    config = replace(config, model_name=name)
    if config.tensor_parallel == 1:
        return Engine(config, source, random_model(config, Parallel()))
    leader = Leader(config, load=random_model)
    loaded = random_model(leader.config, leader.join())
    _memory = leader.host_memory(pinned=True)
    return Engine(leader.config, source, loaded, mirror=leader)


def random_adapter(
    engine: Engine, index: int, rank: int, targets: tuple[str, ...], expert_rank: int = 0
) -> PackedAdapter:
    """Return an adapter on ``targets``, and of ``expert_rank`` (0: none) on every expert."""
    modules = tuple(
        ModuleLora(layer, target, rank, 16.0, 16.0 / rank, "a", "b")
        for layer in range(engine.model_config.num_layers)
        for target in engine.loaded.model.shape.targets_of(layer)
        if target in targets
    )
    a, b = ExpertFactor(("a",), FactorForm.ROWS), ExpertFactor(("b",), FactorForm.COLUMNS)
    experts = tuple(
        ExpertLora(layer, module, expert_rank, (16.0 / expert_rank,), a, b)
        for layer in (engine.model_config.sparse_layers if expert_rank else ())
        for module in (GATE_UP, DOWN)
    )
    manifest = AdapterManifest(rank, targets, "BF16", 0, 0, 0, "random", modules, {}, experts=experts)
    fp8_rows = 2 if engine.loaded.fp8_adapters else 0
    layout = plan_layout(manifest, engine.pool.geometry, engine.targets, fp8_rows)
    shape = (engine.pool.geometry.num_layer_groups, layout.num_pages, engine.pool.geometry.page_elems)
    of_ranks = _memory.zeros((engine.targets.world, *shape), torch.bfloat16)
    for part in of_ranks.view(-1).split(_NOISE):
        part.copy_(noise(len(part), fp8=fp8_rows > 0))
    return PackedAdapter(f"sha256:{index:064x}", max(rank, expert_rank), layout, of_ranks[0], of_ranks)


_memory: HostMemory = PinnedSlabs(1 << 30)
_NOISE = 1 << 26  # weights of an adapter that are made at most; larger ones repeat them
_noise: dict[bool, torch.Tensor] = {}


def noise(count: int, *, fp8: bool = False) -> torch.Tensor:
    """Return small random weights, made once, since only their size matters for speed; with ``fp8`` pairs of E4M3."""
    if len(_noise.get(fp8, ())) < count:
        values = torch.randn(2 * count if fp8 else count, device="cuda") * 0.01
        _noise[fp8] = (values.to(FP8).view(torch.bfloat16) if fp8 else values.bfloat16()).cpu()
    return _noise[fp8][:count]


def run_case(engine: Engine, source: LoadedAdapters, case: Case, requests: int, expert_rank: int = 0) -> dict[str, Any]:
    rnd = random.Random(case.name)
    digests = []
    for index in range(case.adapters):
        packed = random_adapter(engine, index, case.ranks[index % len(case.ranks)], case.targets, expert_rank)
        source.add(packed)
        digests.append(packed.digest)
    vocab = engine.model_config.vocab_size
    params = SamplingParams(max_tokens=128, ignore_eos=True)
    work = []
    for index in range(requests):
        digest = ""
        if digests:
            digest = rnd.choice(digests) if case.uniform else digests[index % len(digests)]
        prompt = [rnd.randrange(vocab) for _ in range(256)]
        work.append(GenerationRequest(f"{case.name}-{index}", prompt, params, digest))
    torch.cuda.synchronize()
    started = time.perf_counter()
    for request in work:
        engine.add_request(request)
    steps: dict[str, list[float]] = {"decode": [], "mixed": []}
    while engine.has_work():
        before = time.perf_counter()
        output = engine.step()
        decoding = not engine.num_waiting and output.deltas  # nothing left to prefill but the last admitted prompts
        steps["decode" if decoding else "mixed"].append(time.perf_counter() - before)
    torch.cuda.synchronize()
    elapsed = time.perf_counter() - started
    engine.core.check()
    for slot in list(engine.core.device_tier.slots()):
        engine.core.device_tier.drop(slot)
    source.clear()
    decode = sorted(steps["decode"])
    return {
        "requests_per_s": requests / elapsed,
        "seconds": elapsed,
        "decode_step_ms": decode[len(decode) // 2] * 1e3 if decode else None,
        "steps": {kind: len(times) for kind, times in steps.items()},
        "mixed_seconds": sum(steps["mixed"]),
    }


def system_name(quantization: str, kv_cache_dtype: str, adapter_dtype: str = "auto") -> str:
    """Return the rows' name of an engine with these settings."""
    fp8 = ", fp8" if quantization == "fp8" else ""
    fp8 += ", fp8 adapters" if adapter_dtype == "fp8" else ""
    return "lorikeet" + fp8 + (", fp8 keys and values" if kv_cache_dtype == "fp8" else "")


def main() -> None:
    parser = parser_of(__doc__, out=True)
    parser.add_argument("--model", choices=MODELS, default="llama-3.1-8b")
    parser.add_argument("--cases", nargs="*", default=list(CASES)[1:], choices=list(CASES))
    parser.add_argument("--lora-off", action="store_true")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each case; the median counts")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--step-tokens", type=int, default=4096, help="0: as many as the engine does")
    parser.add_argument("--max-running", type=int, default=256)
    parser.add_argument("--pool-mb", type=int, default=0)
    parser.add_argument("--kv-cache-dtype", choices=("auto", "fp8"), default="auto")
    parser.add_argument("--adapter-dtype", choices=("auto", "fp8"), default="auto")
    parser.add_argument("--tensor-parallel", type=int, default=1)
    parser.add_argument("--quantization", choices=("auto", "fp8"), default="auto")
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--expert-rank", type=int, default=0, help="rank of adapters on all experts, too; 0: none")
    parser.add_argument("--profile", action="store_true", help="print where the GPU's time goes in the first case")
    arguments = parser.parse_args()
    source = LoadedAdapters()
    config = EngineConfig(
        model=Path("random"), device="cuda", max_context=4096, max_running=arguments.max_running,
        step_tokens=arguments.step_tokens, quantization=arguments.quantization, pool_mb=arguments.pool_mb,
        kv_cache_dtype=arguments.kv_cache_dtype, prefix_cache=False, tensor_parallel=arguments.tensor_parallel,
        deterministic=arguments.deterministic, adapter_dtype=arguments.adapter_dtype,
    )  # fmt: skip
    if arguments.lora_off:
        TritonOps.project = lambda ops, group, layer, x, weight, bias, plan: ops.base_product(x, weight, bias)  # type: ignore[method-assign]
    started = time.perf_counter()
    engine = build_engine(arguments.model, config, source)
    print(f"engine up in {time.perf_counter() - started:.1f} s: {engine.describe()}", flush=True)
    run_case(engine, source, Case("warm-up", 4), 32, arguments.expert_rank)
    while engine.use_idle_time():
        """Every graph is there before anything is measured."""
    if arguments.profile:
        profile(engine, source, CASES[arguments.cases[0]], arguments.expert_rank)
    system = system_name(arguments.quantization, arguments.kv_cache_dtype, arguments.adapter_dtype)
    if arguments.deterministic:
        system += ", deterministic"
    if arguments.tensor_parallel > 1:
        system += f", {arguments.tensor_parallel} GPUs"
    sizes = {"requests": arguments.requests, "step_tokens": config.max_step_tokens}
    if arguments.expert_rank:
        sizes["expert_rank"] = arguments.expert_rank
    rows = Rows(arguments.out, "W1", arguments.model, **sizes, max_running=arguments.max_running)
    if isinstance(engine.runner, GraphRunner):
        rows.add("decode graphs", "kept", engine.runner.graphs.kept_bytes / 2**20, "MiB", None, system)
    for what, seconds in engine.runner.start_seconds.items():
        rows.add(what, "seconds", seconds, "s", None, system)
    for name in arguments.cases:
        case = CASES[name]
        requests = max(arguments.requests, case.adapters if not case.uniform else 0)
        runs = [run_case(engine, source, case, requests, arguments.expert_rank) for _ in range(arguments.repeats)]
        runs.sort(key=lambda run: run["requests_per_s"])
        result = runs[len(runs) // 2]
        each = [round(run["requests_per_s"], 2) for run in runs]
        settings = {**result, "each_run": each}
        rows.add(name, "requests_per_s", result["requests_per_s"], "1/s", None, system, settings)


def capture_when_used() -> None:
    """Let engines capture no graph at start, and every graph in the step that first needs it, those of prompts too."""

    def none(graphs: GraphSet[Any], progress: Callable[[float], None] = lambda share: None) -> float:
        graphs._deferred, graphs.steps_between = True, 0
        return 0.0

    GraphSet.capture_first = none  # type: ignore[method-assign]


def profile(engine: Engine, source: LoadedAdapters, case: Case, expert_rank: int) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as prof:
        run_case(engine, source, case, 300, expert_rank)
    print(prof.key_averages().table(sort_by="cuda_time_total", row_limit=22, max_name_column_width=60))


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(message)s")
    main()
