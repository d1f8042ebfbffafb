"""Time of one decode step by batch and adapters, and of prefill, each beside its floor.

    python benchmarks/step_times.py --out benchmarks/results/w1.jsonl [--model llama-3.1-8b] [--backend flashinfer]

Decode: prompts of `--prompt` tokens, then the median of the steps in which every sequence gets one token. Prefill: 64
prompts of 256 tokens, until each has its first token; and one prompt of 16,384. Adapters on q,k,v,o, ranks
8/16/32/64 round-robin. Floors: for decode what the base's products take, their weights' bytes at a copy's rate or
their operations, whichever is longer, and keys, values, states and distinct adapters' weights at a copy's rate (rows
also have ``bytes_ms``, without the operations). For prefill two operations per parameter and token (and attention's,
over a long prompt). Operations are at a large product's rate, of experts those that a token has; both rates are
measured on the card.
"""

from __future__ import annotations

import logging
import os
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from offline_throughput import MIXED, MIXERS, MODELS, build_engine, capture_when_used, random_adapter, system_name
from rows import Rows, bandwidth, matrix_rate, parser_of

from lora_engine.adapters.layout import PackedAdapter
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.request import GenerationRequest, SamplingParams

BATCHES = (16, 64, 128, 256)
CASES = {"base": 0, "1 adapter": 1, "4 mixed": 4, "32 mixed": 32, "64 mixed": 64, "all distinct": 256}
PROMPT, DECODED = 256, 40
LONG_PROMPT = 16_384


def submit(
    engine: Engine, case: str, batch: int, digests: list[str], max_tokens: int, prompt_tokens: int = PROMPT
) -> None:
    rnd, params = random.Random(case), SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    for index in range(batch):
        prompt = [rnd.randrange(engine.model_config.vocab_size) for _ in range(prompt_tokens)]
        digest = digests[index % len(digests)] if digests else ""
        engine.add_request(GenerationRequest(f"{case}-{batch}-{index}", prompt, params, digest))


def warm(engine: Engine, digests: list[str]) -> None:
    """Bring the adapters to the device, so that no load is measured."""
    for start in range(0, len(digests), 128):
        submit(engine, "warm", len(digests[start : start + 128]), digests[start : start + 128], 1)
        run(engine)


def run(engine: Engine) -> None:
    while engine.has_work():
        engine.step()


def decode_step_ms(engine: Engine, case: str, batch: int, digests: list[str], prompt_tokens: int = PROMPT) -> float:
    # The first sequences decode until the last has its prompt.
    meanwhile = 2 * batch * prompt_tokens // engine.config.max_step_tokens
    submit(engine, case, batch, digests, DECODED + 40 + meanwhile, prompt_tokens)
    times: list[float] = []
    while engine.has_work():
        began = time.perf_counter()
        output = engine.step()
        if not engine.num_waiting and len(output.deltas) == batch:
            times.append(time.perf_counter() - began)
    return statistics.median(times[5:-5]) * 1e3


def prefill_ms(engine: Engine, case: str, digests: list[str], prompts: int = 64, prompt_tokens: int = PROMPT) -> float:
    times = []
    for repeat in range(3):
        submit(engine, f"prefill {repeat} {case}", prompts, digests, 1, prompt_tokens)
        torch.cuda.synchronize()
        began = time.perf_counter()
        run(engine)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


def fitting(engine: Engine, batch: int, prompt_tokens: int = PROMPT) -> int:
    """Return the size of the largest batch, at most ``batch``, that fits into the pool while it is measured."""
    tokens = prompt_tokens + DECODED + 40 + 2 * batch * prompt_tokens // engine.config.max_step_tokens
    adapter_pages = sum(len(slot.pages) for slot in engine.core.device_tier.slots())
    return min(batch, (engine.pool.num_pages - adapter_pages) // (engine.pool.geometry.pages_for_sequence(tokens) + 1))


def floors_ms(
    engine: Engine, used: Sequence[PackedAdapter], batch: int, prompt_tokens: int = PROMPT
) -> tuple[float, float]:
    """Return the least time of a decode step, and of its bytes alone; of several GPUs, those of rank 0.

    ``used``: the adapters of the step, each once.
    """
    geometry = engine.pool.geometry
    context = prompt_tokens + DECODED // 2
    kv = batch * context * 2 * geometry.kv_dim * engine.pool.kv.dtype.itemsize * geometry.num_layer_groups
    if (delta := engine.loaded.model.shape.delta_states(geometry)) is not None:  # states are read and written
        rows = [rows for state in delta.states.values() for rows in (state.recurrent, state.convolution)]
        pages = geometry.page_elems * engine.pool.data.element_size()
        kv += 2 * batch * sum(r.count * r.length * pages // r.page_elems for r in rows)
    lora = sum(packed.data.nbytes for packed in used)
    rate, operations = bandwidth(), 2 * active_parameters(engine) * batch
    base, others = product_bytes(engine) / rate, (kv + lora) / rate
    return (max(base, operations / matrix_rate()) + others) * 1e3, (base + others) * 1e3


def product_bytes(engine: Engine) -> int:
    """Return the bytes of the base's weights, without an embedding that is no head: a step reads few of its rows."""
    weights = engine.loaded.model.weights
    return weights.num_bytes() - (0 if weights.lm_head is weights.embedding else weights.embedding.nbytes)


def active_parameters(engine: Engine) -> float:
    """Return the parameters that multiply a token; those of dense layers in FP8 count half, as their rate is double."""
    weights, config = engine.loaded.model.weights, engine.loaded.model.shape.experts
    stacks = [stack for layer in weights.layers if (e := layer.experts) is not None for stack in (e.gate_up, e.down)]
    of_token = sum(stack.shape[1] * stack.shape[2] * config.per_token for stack in stacks) if config else 0
    return (product_bytes(engine) - sum(stack.nbytes for stack in stacks)) / 2 + of_token


def main() -> None:
    parser = parser_of(__doc__, out=True)
    parser.add_argument("--model", choices=MODELS, default="llama-3.1-8b")
    parser.add_argument("--backend", choices=("triton", "flashinfer"), default="triton")
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--prefill-only", action="store_true")
    parser.add_argument("--batches", nargs="*", type=int, default=list(BATCHES))
    parser.add_argument("--prompt", type=int, default=PROMPT, help="tokens of the prompts before decode steps")
    parser.add_argument("--decode-only", action="store_true")
    parser.add_argument("--quantization", choices=("auto", "fp8"), default="auto")
    parser.add_argument("--kv-cache-dtype", choices=("auto", "fp8"), default="auto")
    parser.add_argument("--tensor-parallel", type=int, default=1, help="GPUs; the floor is that of the first one")
    parser.add_argument(
        "--expert-rank", type=int, default=0, help="rank of adapters on all experts; 0: on attention only"
    )
    parser.add_argument("--capture-when-used", action="store_true", help="not at start: for few batches")
    arguments = parser.parse_args()
    source = LoadedAdapters()
    config = EngineConfig(
        model=Path("random"), device="cuda", max_context=0, max_running=256, step_tokens=4096, prefix_cache=False,
        backend=arguments.backend, quantization=arguments.quantization, kv_cache_dtype=arguments.kv_cache_dtype,
        cuda_graphs=not arguments.prefill_only, tensor_parallel=arguments.tensor_parallel,
    )  # fmt: skip
    if arguments.capture_when_used:
        capture_when_used()
    engine = build_engine(arguments.model, config, source)
    packed = {}
    for index in range(max(CASES[case] for case in arguments.cases)):
        adapter = random_adapter(engine, index, MIXED[index % len(MIXED)], MIXERS, arguments.expert_rank)
        source.add(adapter)
        packed[adapter.digest] = adapter
    digests = list(packed)
    warm(engine, digests)
    sizes = {"prompt": arguments.prompt, "pages": engine.pool.num_pages}
    if arguments.expert_rank:
        sizes["expert_rank"] = arguments.expert_rank
        print(f"an adapter takes {adapter.num_bytes / 2**20:.0f} MiB", flush=True)
    rows = Rows(arguments.out, "W1", arguments.model, **sizes)
    system = system_name(arguments.quantization, arguments.kv_cache_dtype)
    system += ", flashinfer" if arguments.backend == "flashinfer" else ""
    system += f", {arguments.tensor_parallel} GPUs" if arguments.tensor_parallel > 1 else ""
    parameters = active_parameters(engine)
    for case in arguments.cases:
        adapters = CASES[case]
        used = digests[:adapters]
        for batch in arguments.batches if not arguments.prefill_only else ():
            if adapters <= batch or case == "all distinct":
                batch = fitting(engine, batch, arguments.prompt)
                mine = used[:batch]
                value = decode_step_ms(engine, case, batch, mine, arguments.prompt)
                floor, of_bytes = floors_ms(engine, [packed[digest] for digest in mine], batch, arguments.prompt)
                rows.add(case, "step_ms", value, "ms", floor, system, {"batch": batch, "bytes_ms": round(of_bytes, 3)})
        if case != "all distinct" and not arguments.decode_only:
            floor = 2 * parameters * 64 * PROMPT / matrix_rate() * 1e3
            rows.add(case, "prefill_ms", prefill_ms(engine, case, used), "ms", floor, system, {"prompts": 64})
    if engine.loaded.max_context > LONG_PROMPT and not arguments.decode_only:
        shape, geometry = engine.loaded.model.shape, engine.pool.geometry
        attention = 4 * shape.heads * shape.head_dim * geometry.num_layer_groups * LONG_PROMPT**2 / 2
        floor = (2 * parameters * LONG_PROMPT + attention) / matrix_rate() * 1e3
        value = prefill_ms(engine, "long", [], 1, LONG_PROMPT)
        rows.add("base", "prefill_ms", value, "ms", floor, system, {"prompts": 1, "prompt": LONG_PROMPT})
    sys.stdout.flush()
    os._exit(0)  # as the engine's process does: NCCL would wait for the graphs that have its sums


if __name__ == "__main__":
    logging.basicConfig(level="WARNING", format="%(message)s")
    main()
