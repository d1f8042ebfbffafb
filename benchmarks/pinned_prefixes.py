"""First token behind a long system prompt after a busy hour of others: pinned, and not.

    python benchmarks/pinned_prefixes.py --out benchmarks/results/pinned_prefixes.jsonl              # 16k, on a GPU
    python benchmarks/pinned_prefixes.py --cpu --out benchmarks/results/pinned_prefixes.jsonl        # 4k, a small model

A tenant's adapter has been asked with a long prefix. Then others' prompts go through the pool, more than it holds, and
the tenant asks again, alone: the time from the request to its first token. Once with the prefix pinned, once without.
Others' first tokens say what the pin costs them. Weights are random, the work is not.
"""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path

import torch
from activated_lora import SMALL, Bench, adapter, loaded
from offline_throughput import LLAMA_3_1_8B
from rows import Rows, parser_of

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.request import GenerationRequest, PinnedPrefix, PinState, Slo

ROUNDS = 5


def pin(engine: Engine, prefix: PinnedPrefix) -> float:
    """Pin the prefix; return the seconds that an idle engine needs to compute it."""
    assert engine.pin_prefixes([prefix])[prefix.name] is PinState.MISSING
    began = time.perf_counter()
    owner = {"adapter_digest": prefix.adapter_digest, "tenant": prefix.tenant}
    how = {"slo": Slo(background=True), "prompt_only": True, "pin": prefix.name}
    engine.add_request(GenerationRequest("pin", prefix.token_ids, **owner, **how))
    while engine.has_work():
        engine.step()
    assert engine.pinned_prefixes()[prefix.name] is PinState.KEPT
    return time.perf_counter() - began


def main() -> None:
    parser = parser_of(__doc__, out=True)
    parser.add_argument("--cpu", action="store_true", help="a small model, and a shorter prefix")
    args = parser.parse_args()
    context = 4096 if args.cpu else 16384
    config = EngineConfig(
        model=Path(), device="cpu" if args.cpu else "cuda", max_context=context + 256, step_tokens=4096,
        pool_mb=128 if args.cpu else 12_000,
    )  # fmt: skip
    shape, dtype = (SMALL, torch.float32) if args.cpu else (LLAMA_3_1_8B, torch.bfloat16)
    source = LoadedAdapters()
    engine = Engine(config, source, loaded(shape, config, dtype))
    packed = adapter(engine, 1, ())
    source.add(packed)
    bench, rnd = Bench(engine), random.Random(1)

    def words() -> list[int]:
        return [rnd.randrange(400, 4000) for _ in range(context)]

    prefix = PinnedPrefix("handbook", "one", packed.digest, "", words())
    others = -(-engine.pool.num_pages * config.page_tokens // context) + 1

    def pressure() -> float:
        """Run other prompts, more than the pool holds; return their median time to first token, in seconds."""
        return statistics.median(bench.first_token(words())[0] for _ in range(others))

    pressure()  # a warm-up, which compiles kernels
    bench.first_token([*prefix.token_ids, 7], packed.digest)
    name = "small, random" if args.cpu else "llama-3.1-8b"
    settings = {"context": context, "pool_mb": config.pool_mb, "others": others, "step_tokens": config.step_tokens}
    rows = Rows(args.out, "pinned_prefixes", name, **settings, cpu=args.cpu)
    medians: dict[str, float] = {}
    for kind in ("not pinned", "pinned"):
        if kind == "pinned":
            rows.add("computing it", "seconds", pin(engine, prefix), "s")
        warm, beside = [], []
        for number in range(ROUNDS):
            beside.append(pressure())
            warm.append(bench.first_token([*prefix.token_ids, 8 + number], packed.digest))
        medians[kind] = statistics.median(seconds for seconds, _ in warm)
        more = {"cached": [cached for _, cached in warm], "each_ms": [round(1000 * s, 2) for s, _ in warm]}
        rows.add(kind, "first_token_ms", 1000 * medians[kind], "ms", settings=more)
        rows.add(f"others, {kind}", "first_token_ms", 1000 * statistics.median(beside), "ms")
    rows.add("not pinned / pinned", "ratio", medians["not pinned"] / medians["pinned"], "")
    engine.core.check()


if __name__ == "__main__":
    main()
