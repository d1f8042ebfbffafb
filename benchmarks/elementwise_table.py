"""Time of the kernels between the matrix products, and of sampling, beside the bytes they must move.

    python benchmarks/elementwise_table.py --out benchmarks/results/elementwise.jsonl

Llama-3.1-8B sizes, bfloat16: residual and norm, rotary embedding with the write of keys and values, silu(gate) * up,
embedding, and the choice of a token for each row of the logits (greedy, and at a temperature with and without top-p;
the floor is one reading of the logits). Each measurement replays a CUDA graph of eight calls on different data. The
logits are normal, so flat: top-p keeps tens of thousands of tokens; "peaked" ones are ten times as large. A last row is
what a call costs the host, which prepares the next step meanwhile.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from kernel_table import LAYERS, measure
from rows import Rows, bandwidth, parser_of, traffic

from lora_engine.request import SamplingParams
from lora_engine.sampling import SamplingRow, parameters_of, sample
from lora_kernels.elementwise import add_norm, gated_activation, rope_and_write_kv
from lora_kernels.sampling import sample_tokens

HIDDEN, INNER, VOCAB = 4096, 14336, 128256
HEADS, KV_HEADS, HEAD_DIM, PAGE_TOKENS = 32, 8, 128, 16
WIDTH = (HEADS + 2 * KV_HEADS) * HEAD_DIM
TOKENS = (64, 256, 4096)
BATCHES = (64, 256)
CHOICES = {
    "greedy": (SamplingParams(), 1.0),
    "temperature": (SamplingParams(temperature=1.0), 1.0),
    "temperature, top-p": (SamplingParams(temperature=1.0, top_p=0.9), 1.0),
    "temperature, top-p, peaked": (SamplingParams(temperature=1.0, top_p=0.9), 10.0),
    "temperature, top-k 40": (SamplingParams(temperature=1.0, top_k=40), 1.0),
}
Kernel = tuple[Callable[[int], object], int]  # a call on the data of a layer, and the bytes it must move


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def norm(tokens: int) -> Kernel:
    x, residual, out = (random(LAYERS, tokens, HIDDEN) for _ in range(3))
    weight = random(HIDDEN)
    return lambda layer: add_norm(x[layer], residual[layer], weight, 1e-5, out[layer]), 4 * x[0].nbytes


def rope(tokens: int) -> Kernel:
    qkv, pages = random(LAYERS, tokens, WIDTH), -(-tokens // PAGE_TOKENS)
    pool = random(LAYERS, pages, 2 * PAGE_TOKENS * KV_HEADS * HEAD_DIM)
    cos, sin = random(tokens, HEAD_DIM), random(tokens, HEAD_DIM)
    positions = torch.arange(tokens, device="cuda", dtype=torch.int32)
    slot_mapping = positions // PAGE_TOKENS * 2 * PAGE_TOKENS + positions % PAGE_TOKENS

    def run(layer: int) -> None:
        rope_and_write_kv(
            qkv[layer], cos, sin, positions, slot_mapping, pool[layer],
            heads=HEADS, kv_heads=KV_HEADS, head_dim=HEAD_DIM, page_tokens=PAGE_TOKENS,
        )  # fmt: skip

    return run, 2 * qkv[0].nbytes  # all is read; queries are written in place, keys and values into the pool


def silu(tokens: int) -> Kernel:
    gate_up, out = random(LAYERS, tokens, 2 * INNER), random(LAYERS, tokens, INNER)
    return lambda layer: gated_activation(gate_up[layer], out[layer]), gate_up[0].nbytes + out[0].nbytes


def embedding(tokens: int) -> Kernel:
    table, ids = random(VOCAB, HIDDEN), torch.randint(0, VOCAB, (LAYERS, tokens), device="cuda")
    return lambda layer: F.embedding(ids[layer], table), 2 * tokens * HIDDEN * 2


def choice(batch: int, sampling: SamplingParams, scale: float) -> Kernel:
    logits = random(LAYERS, batch, VOCAB) * scale
    if sampling.plain_greedy:
        return lambda layer: sample_tokens(logits[layer]), logits[0].nbytes
    rows = parameters_of([SamplingRow(sampling, seed, 0) for seed in range(batch)]).cuda()
    truncated = sampling.top_p < 1 or sampling.top_k > 0
    return lambda layer: sample_tokens(logits[layer], rows, truncated=truncated), logits[0].nbytes


def host_us(batch: int, sampling: SamplingParams) -> float:
    """Return the microseconds until the call returns on the host."""
    logits, rows = random(batch, VOCAB), [SamplingRow(sampling, seed, 0) for seed in range(batch)]
    times = []
    for _ in range(20):
        torch.cuda.synchronize()
        began = time.perf_counter()
        sample(logits, rows)
        times.append((time.perf_counter() - began) * 1e6)
    return statistics.median(times)


def main() -> None:
    parser = parser_of(__doc__, out=True)
    arguments = parser.parse_args()
    rows = Rows(arguments.out, "elementwise", "llama-3.1-8b")

    def add(case: str, metric: str, us: float, moved: int) -> None:
        rows.add(case, metric, us, "us", moved / bandwidth() * 1e6, settings=traffic(moved, us))

    for name, build in {"norm": norm, "rope": rope, "silu": silu, "embedding": embedding}.items():
        for tokens in TOKENS:
            run, moved = build(tokens)
            add(f"{name} {tokens} tokens", "kernel_us", measure(run), moved)
    for batch in BATCHES:
        for name, (sampling, scale) in CHOICES.items():
            run, moved = choice(batch, sampling, scale)
            add(f"{name}, {batch} rows", "kernel_us", measure(run), moved)
        rows.add(f"temperature, {batch} rows", "host_us", host_us(batch, CHOICES["temperature"][0]), "us")


if __name__ == "__main__":
    main()
