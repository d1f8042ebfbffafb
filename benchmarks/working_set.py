"""W3: what happens when more adapters are in use than fit on the device beside the KV cache.

    python benchmarks/working_set.py --out benchmarks/results/w3.jsonl

Llama-3.1-8B shape, random weights; ranks 8/16/32/64 round-robin on q,k,v,o. The pool is limited so that it
holds `--resident` adapters beside the running requests' KV. Requests (128 tokens in, 64 out) arrive
as a Poisson process at a fixed rate, each with an adapter drawn uniformly from 0.5 to 8 times the
resident set. Reports throughput, first-token time, and how much of the copies' time was hidden.
`--no-prefetch` is the ablation: adapters are asked for when their request's turn comes.
"""

from __future__ import annotations

import logging
import random
import statistics
import time
from pathlib import Path

from offline_throughput import MIXED, MIXERS, build_engine, random_adapter
from rows import Rows, parser_of

from lora_engine.adapters.device_tier import LoadStats
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.request import GenerationRequest, SamplingParams

PROMPT, OUTPUT = 128, 64
FACTORS = (0.5, 1, 2, 4, 8)


def serve(engine: Engine, digests: list[str], rate: float, seconds: float, seed: int) -> dict[str, float]:
    """Poisson arrivals for ``seconds``, in real time; figures of the requests that arrived."""
    times, rnd = random.Random(1), random.Random(seed)  # the same times whatever the adapters
    arrivals, at = [], 0.0
    while (at := at + times.expovariate(rate)) < seconds:
        arrivals.append((at, rnd.choice(digests)))
    params, vocab = SamplingParams(max_tokens=OUTPUT, ignore_eos=True), engine.model_config.vocab_size
    engine.core.device_tier.stats = LoadStats()
    arrived: dict[str, float] = {}
    first: dict[str, float] = {}
    done, began = 0, time.perf_counter()
    while done < len(arrivals):
        now = time.perf_counter() - began
        while len(arrived) < len(arrivals) and arrivals[len(arrived)][0] <= now:
            due, digest = arrivals[len(arrived)]
            name = f"{seed}-{len(arrived)}"
            prompt = [rnd.randrange(vocab) for _ in range(PROMPT)]
            engine.add_request(GenerationRequest(name, prompt, params, digest))
            arrived[name] = due
        output = engine.step()
        now = time.perf_counter() - began
        for delta in output.deltas:
            first.setdefault(delta.request_id, now)
        done += len(output.finished)
    elapsed, loads = time.perf_counter() - began, engine.core.device_tier.stats
    waits = sorted((first[name] - arrived[name]) * 1e3 for name in first)
    return {
        "requests_per_s": len(arrivals) / elapsed,
        "ttft_p50_ms": statistics.median(waits),
        "ttft_p99_ms": waits[int(0.99 * len(waits))],
        "loads": loads.adapters,
        "copy_gb_per_s": loads.num_bytes / loads.seconds / 1e9 if loads.seconds else 0.0,
        "copy_busy": loads.seconds / elapsed,
        "hidden_share": 1 - loads.exposed_seconds / loads.seconds if loads.seconds else 1.0,
    }


def main() -> None:
    parser = parser_of(__doc__, out=True)
    parser.add_argument("--resident", type=int, default=64)
    parser.add_argument("--rate", type=float, default=60.0, help="requests per second")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--no-prefetch", action="store_true")
    arguments = parser.parse_args()
    source = LoadedAdapters()
    kv_mb = 128 * 192 * 131072 / 2**20  # 128 running requests at their longest
    adapters_mb = arguments.resident * 51.5  # a mixed-rank adapter on average
    config = EngineConfig(
        model=Path("random"), device="cuda", max_context=1024, max_running=128, step_tokens=2048, prefix_cache=False,
        prefetch=0 if arguments.no_prefetch else 16, pool_mb=int(kv_mb + adapters_mb),
    )  # fmt: skip
    engine = build_engine("llama-3.1-8b", config, source)
    digests = []
    for index in range(int(arguments.resident * FACTORS[-1])):
        packed = random_adapter(engine, index, MIXED[index % len(MIXED)], MIXERS)
        source.add(packed)
        digests.append(packed.digest)
    serve(engine, digests[:8], arguments.rate, 2.0, seed=-1)  # warm-up
    rows = Rows(
        arguments.out, "W3", "llama-3.1-8b", resident=arguments.resident, rate=arguments.rate,
        seconds=arguments.seconds, prefetch=not arguments.no_prefetch,
    )  # fmt: skip
    system = "no prefetch" if arguments.no_prefetch else "lorikeet"
    for index, factor in enumerate(FACTORS):
        in_use = digests[: int(arguments.resident * factor)]
        result = serve(engine, in_use, arguments.rate, arguments.seconds, seed=index)
        engine.core.check()
        units = {"requests_per_s": "1/s", "ttft_p50_ms": "ms", "ttft_p99_ms": "ms", "copy_gb_per_s": "GB/s"}
        for metric, unit in {**units, "hidden_share": ""}.items():
            rows.add(f"{factor} x resident", metric, result[metric], unit, system=system, settings=result)


if __name__ == "__main__":
    logging.basicConfig(level="WARNING", format="%(message)s")
    main()
