"""First token behind a long context that is known: Activated LoRA beside plain adapters.

    python benchmarks/activated_lora.py --out benchmarks/results/activated_lora.jsonl                # 16k, on a GPU
    python benchmarks/activated_lora.py --cpu --out benchmarks/results/activated_lora.jsonl          # 4k, a small model

A tenant's request to the base model has computed the context. Then each of several adapters, which are on the device
already, is asked about it once, alone: the time from the request to its first token. Plain adapters compute the context
themselves; activated ones find it, up to their invocation, in the prefix cache. Weights are random, the work is not.
"""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from offline_throughput import ALL_LINEAR, LLAMA_3_1_8B, tokenizer_folder
from rows import Rows, parser_of

from lora_engine.adapters.host_memory import PageableMemory
from lora_engine.adapters.layout import PackedAdapter, TargetShapes, plan_layout
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.model.config import ModelConfig
from lora_engine.model.loading import LoadedModel, build_pool, build_transformer
from lora_engine.model.parallel import Parallel
from lora_engine.model.weight_loading import random_weights
from lora_engine.peft_format import AdapterManifest, ModuleLora
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.text import Tokenizer

SMALL: dict[str, Any] = {
    "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256, "intermediate_size": 688,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 4096, "max_position_embeddings": 32768,
    "rope_theta": 500000.0,
}  # fmt: skip
RANK, ADAPTERS, INVOCATION = 32, 8, (301, 302, 303, 304)


def loaded(shape: dict[str, Any], config: EngineConfig, dtype: torch.dtype) -> LoadedModel:
    model_config, device = ModelConfig.from_dict(shape), torch.device(config.device)
    weights = random_weights(model_config, device, dtype, Parallel())
    model, tables = build_transformer(config, model_config, weights, config.max_context, Parallel())
    return LoadedModel(
        "random", "sha256:random", str(device), model, Tokenizer.load(tokenizer_folder(model_config.vocab_size)),
        build_pool(config, model, config.max_context), TargetShapes(model_config.target_shapes(0, 1)),
        config.max_context, tables,
    )  # fmt: skip


def adapter(engine: Engine, number: int, invocation: tuple[int, ...]) -> PackedAdapter:
    layers = engine.model_config.num_layers
    modules = tuple(
        ModuleLora(layer, target, RANK, 16.0, 16.0 / RANK, "a", "b") for layer in range(layers) for target in ALL_LINEAR
    )
    manifest = AdapterManifest(RANK, ALL_LINEAR, "BF16", 0, 0, 0, "random", modules, {}, invocation_tokens=invocation)
    layout, pool = plan_layout(manifest, engine.pool.geometry, engine.targets), engine.pool
    data = PageableMemory().zeros((layers, layout.num_pages, pool.geometry.page_elems), pool.data.dtype)
    data.normal_(std=0.01)
    return PackedAdapter(f"sha256:{number:064x}", RANK, layout, data.pin_memory() if pool.data.is_cuda else data)


class Bench:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._requests = 0

    def first_token(self, prompt: list[int], digest: str = "") -> tuple[float, int]:
        """Return the seconds to the first token, and the number of cached tokens."""
        self._requests += 1
        request = GenerationRequest(
            str(self._requests), prompt, SamplingParams(max_tokens=2, ignore_eos=True), digest, tenant="one"
        )
        cached, took, began = 0, 0.0, time.perf_counter()
        self._engine.add_request(request)
        while self._engine.has_work():
            output = self._engine.step()
            if output.deltas and not took:
                took = time.perf_counter() - began
            cached += sum(end.usage.cached_prompt_tokens for end in output.finished)
        return took, cached


def main() -> None:
    parser = parser_of(__doc__, out=True)
    parser.add_argument("--cpu", action="store_true", help="a small model, and a shorter context")
    parser.add_argument("--context", type=int, default=0, help="tokens")
    args = parser.parse_args()
    context = args.context or (4096 if args.cpu else 16384)
    config = EngineConfig(
        model=Path(), device="cpu" if args.cpu else "cuda", max_context=context + 256, step_tokens=4096,
        pool_mb=1024 if args.cpu else 40_000,
    )  # fmt: skip
    shape, dtype = (SMALL, torch.float32) if args.cpu else (LLAMA_3_1_8B, torch.bfloat16)
    source = LoadedAdapters()
    engine = Engine(config, source, loaded(shape, config, dtype))
    kinds = {"plain": [], "activated": []}
    for number in range(2 * ADAPTERS):
        kind = "activated" if number % 2 else "plain"
        packed = adapter(engine, number + 1, INVOCATION if kind == "activated" else ())
        source.add(packed)
        kinds[kind].append(packed.digest)
    bench, rnd = Bench(engine), random.Random(1)
    words = [rnd.randrange(400, 4000) for _ in range(2 * context)]
    first, second = words[:context], words[context:]
    for digest in ("", *kinds["plain"], *kinds["activated"]):
        bench.first_token([*second[:64], *INVOCATION], digest)  # brings it to the device
    for digest in ("", kinds["plain"][0], kinds["activated"][0]):
        bench.first_token([*second, *INVOCATION], digest)  # a warm-up, which compiles kernels
    base, _ = bench.first_token([*first, 1])
    name = "small, random" if args.cpu else "llama-3.1-8b"
    settings = {"context": context, "rank": RANK, "adapters": ADAPTERS, "step_tokens": config.step_tokens}
    rows = Rows(args.out, "activated_lora", name, **settings, cpu=args.cpu)
    rows.add("base, cold", "first_token_ms", 1000 * base, "ms")
    medians = {}
    for kind, digests in kinds.items():
        times = [bench.first_token([*first, *INVOCATION], digest) for digest in digests]
        medians[kind] = statistics.median(seconds for seconds, _ in times)
        more = {"cached": [cached for _, cached in times], "each_ms": [round(1000 * s, 2) for s, _ in times]}
        rows.add(kind, "first_token_ms", 1000 * medians[kind], "ms", settings=more)
    rows.add("plain / activated", "ratio", medians["plain"] / medians["activated"], "")


if __name__ == "__main__":
    main()
