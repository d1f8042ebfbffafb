"""First token behind a cached prefix of 16,384 tokens, of a model with recurrent layers.

    python benchmarks/hybrid_prefix.py --out benchmarks/results/hybrid.jsonl

Random weights of Qwen3.5-9B's shape. The prompt is computed once, in steps of 4,096 tokens; then requests continue it
by 32 new tokens each. The engine has kept keys, values and the state at the prompt's last full page. The floor of such
a request is one read of the weights.
"""

from __future__ import annotations

import logging
import random
import statistics
import time
from pathlib import Path

import torch
from offline_throughput import build_engine
from rows import Rows, bandwidth, parser_of

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.request import GenerationRequest, SamplingParams

PREFIX, NEW, TURNS = 16_384, 32, 8


def first_token_ms(engine: Engine, name: str, prompt: list[int]) -> tuple[float, int]:
    """Return the milliseconds to a request's only token, and the tokens of its prompt that were cached."""
    torch.cuda.synchronize()
    began, cached = time.perf_counter(), 0
    engine.add_request(GenerationRequest(name, prompt, SamplingParams(max_tokens=1, ignore_eos=True)))
    while engine.has_work():
        for end in engine.step().finished:
            cached = end.usage.cached_prompt_tokens
    return (time.perf_counter() - began) * 1e3, cached


def main() -> None:
    arguments = parser_of(__doc__, out=True).parse_args()
    config = EngineConfig(
        model=Path("random"), device="cuda", max_context=32_768, max_running=16, step_tokens=4096, prefix_cache=True
    )
    engine, rnd = build_engine("qwen3.5-9b", config, LoadedAdapters()), random.Random(1)

    def tokens(count: int) -> list[int]:
        return [rnd.randrange(engine.model_config.vocab_size) for _ in range(count)]

    for length in (PREFIX, NEW, NEW):  # kernels
        first_token_ms(engine, f"warm {length}", tokens(length))
    rows = Rows(arguments.out, "cached prefix", "qwen3.5-9b", prefix=PREFIX, new=NEW)
    prefix = tokens(PREFIX)
    cold, _ = first_token_ms(engine, "cold", prefix)
    rows.add("cold", "first_token_ms", cold, "ms")
    runs = [first_token_ms(engine, f"turn {index}", prefix + tokens(NEW)) for index in range(TURNS)]
    assert all(cached >= PREFIX - 16 for _, cached in runs[1:]), runs
    floor = engine.loaded.model.weights.num_bytes() / bandwidth() * 1e3
    rows.add("behind the prefix", "first_token_ms", statistics.median(ms for ms, _ in runs[1:]), "ms", floor)


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(message)s")
    main()
