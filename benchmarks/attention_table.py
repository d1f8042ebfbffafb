"""Time of paged attention, decode and prefill, beside its floor and, where it is installed, FlashInfer.

    python benchmarks/attention_table.py --out benchmarks/results/attention.jsonl

Heads of Llama-3.1-8B and Llama-2-7B, bfloat16, pages of 16 tokens in random order, the same for both. A decode's
floor is the keys and values it reads at a copy's rate on the card; a prefill's that, or its two products over the
keys that its queries may see, at a large product's rate. Each measurement replays a CUDA graph that walks eight layers;
the figure is the median time of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from kernel_table import LAYERS, measure
from rows import Rows, bandwidth, matrix_rate, parser_of, traffic

from lora_kernels.attention import (
    BLOCK_M,
    LONG,
    DecodeWorkspace,
    PrefillWorkspace,
    decode_splits,
    paged_decode,
    paged_prefill,
    prefill_tiles,
)
from lora_kernels.hopper_prefill import TILE_ROWS, can_attend

PAGE_TOKENS, HEAD_DIM = 16, 128
MODELS = {"llama-3.1-8b": (32, 8), "llama-2-7b": (32, 32)}  # query heads, key-value heads
DECODE = ((64, 512), (256, 320), (16, 4096), (4, 32768))  # sequences, tokens of each
BACKENDS = ("fa2", "fa3")  # FlashInfer's, for prefill
# Sequences, tokens, context before them; the first rows are the last message of a long conversation.
PREFILL = (
    (1, 4, 16384), (1, 64, 16384), (4, 16, 4096), (1, 16, 131072),
    (16, 256, 0), (2, 2048, 0), (1, 4096, 0), (1, 4096, 12288),
    (1, 256, 0), (1, 512, 0), (1, 1024, 0), (8, 512, 0), (4, 1024, 0), (1, 512, 4096),
)  # fmt: skip


@dataclass
class Paged:
    """A batch of sequences of equal length, in a pool of eight layers."""

    pool: torch.Tensor  # [layers, pages, page elements]
    table: torch.Tensor  # [sequences, pages of each]


def pages_of(sequences: int, tokens: int, kv_heads: int) -> Paged:
    each = -(-tokens // PAGE_TOKENS)
    pool = torch.randn(
        LAYERS, sequences * each + 1, 2 * PAGE_TOKENS * kv_heads * HEAD_DIM, device="cuda", dtype=torch.bfloat16
    )
    order = torch.randperm(sequences * each, device="cuda") + 1
    return Paged(pool, order.view(sequences, each).int())


def decode(sequences: int, tokens: int, heads: int, kv_heads: int) -> dict[str, Callable[[int], None]]:
    paged = pages_of(sequences, tokens, kv_heads)
    q = torch.randn(sequences, heads * HEAD_DIM, device="cuda", dtype=torch.bfloat16)
    lengths = torch.full((sequences,), tokens, dtype=torch.int32, device="cuda")
    workspace = DecodeWorkspace(sequences, heads, HEAD_DIM, 32, "cuda")
    splits = decode_splits(sequences, kv_heads)
    out = torch.empty_like(q)

    def ours(layer: int) -> None:
        paged_decode(
            q, paged.pool[layer], paged.table, lengths, out, workspace,
            heads=heads, kv_heads=kv_heads, page_tokens=PAGE_TOKENS, splits=splits,
        )  # fmt: skip

    return {"lorikeet": ours, **flashinfer_decode(q, paged, tokens, heads, kv_heads)}


def prefill(sequences: int, tokens: int, context: int, heads: int, kv_heads: int) -> dict[str, Callable[[int], None]]:
    paged = pages_of(sequences, tokens + context, kv_heads)
    q = torch.randn(sequences * tokens, heads * HEAD_DIM, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(q)
    spans = [(index, index * tokens, tokens, context) for index in range(sequences)]
    sizes = {"heads": heads, "kv_heads": kv_heads, "page_tokens": PAGE_TOKENS}

    def attention(hopper: bool, split_keys: bool) -> tuple[int, Callable[[int], None]]:
        """Return the number of tiles, and what computes a layer."""
        block_m = TILE_ROWS if hopper else BLOCK_M
        workspace = PrefillWorkspace(kv_heads, HEAD_DIM, "cuda", block_m)
        tiles = prefill_tiles(spans, heads, kv_heads, block_m, split_keys).cuda()
        options = {"workspace": workspace, "block_m": block_m, "hopper": hopper, "split_keys": split_keys, **sizes}
        return len(tiles), lambda layer: paged_prefill(q, paged.pool[layer], paged.table, tiles, out, **options)

    hopper = can_attend(heads, kv_heads, HEAD_DIM, PAGE_TOKENS, q.dtype, q.dtype, q.device)
    long = paged.table.shape[1] * PAGE_TOKENS >= LONG  # as the engine chooses outside of graphs
    split, by_splits = attention(hopper, split_keys=True)
    whole, ours = attention(hopper and long, split_keys=False)
    if long and split > whole:
        systems = {"lorikeet": by_splits, "lorikeet, keys not split": ours}
    else:  # a mixed graph launches for splits, whether there are any or not
        systems = {"lorikeet": ours, "lorikeet, in a mixed graph": by_splits}
    if hopper:
        systems["lorikeet, Triton"] = attention(False, split_keys=False)[1]
        systems["lorikeet, Triton, in a mixed graph"] = attention(False, split_keys=True)[1]
    return {**systems, **flashinfer_prefill(q, paged, tokens, context, heads, kv_heads)}


def flashinfer_decode(
    q: torch.Tensor, paged: Paged, tokens: int, heads: int, kv_heads: int
) -> dict[str, Callable[[int], None]]:
    if not find_spec("flashinfer"):
        return {}
    import flashinfer  # type: ignore[import-not-found]

    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        _scratch(), "NHD", use_tensor_cores=heads >= 4 * kv_heads, backend="fa2"
    )
    wrapper.plan(*_page_lists(paged, tokens), heads, kv_heads, HEAD_DIM, PAGE_TOKENS, q_data_type=q.dtype)
    return {"flashinfer": _flashinfer_run(wrapper, q, paged, heads, kv_heads)}


def flashinfer_prefill(
    q: torch.Tensor, paged: Paged, tokens: int, context: int, heads: int, kv_heads: int
) -> dict[str, Callable[[int], None]]:
    if not find_spec("flashinfer"):
        return {}
    import flashinfer

    starts = torch.arange(len(paged.table) + 1, dtype=torch.int32) * tokens
    runs = {}
    for backend in BACKENDS:
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(_scratch(), "NHD", backend=backend)
        wrapper.plan(
            starts, *_page_lists(paged, tokens + context), heads, kv_heads, HEAD_DIM, PAGE_TOKENS,
            causal=True, q_data_type=q.dtype,
        )  # fmt: skip
        runs[f"flashinfer {backend}"] = _flashinfer_run(wrapper, q, paged, heads, kv_heads)
    return runs


def _scratch() -> torch.Tensor:
    return torch.zeros(256 * 2**20, dtype=torch.uint8, device="cuda")


def _page_lists(paged: Paged, tokens: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    sequences, each = paged.table.shape
    starts = torch.arange(sequences + 1, dtype=torch.int32) * each
    last = torch.full((sequences,), (tokens - 1) % PAGE_TOKENS + 1, dtype=torch.int32)
    return starts, paged.table.flatten(), last


def _flashinfer_run(wrapper: Any, q: torch.Tensor, paged: Paged, heads: int, kv_heads: int) -> Callable[[int], None]:
    queries = q.view(-1, heads, HEAD_DIM)
    out = torch.empty_like(queries)
    cache = paged.pool.view(LAYERS, -1, 2, PAGE_TOKENS, kv_heads, HEAD_DIM)
    return lambda layer: wrapper.run(queries, cache[layer], out=out)


def main() -> None:
    parser = parser_of(__doc__, out=True)
    arguments = parser.parse_args()
    for model, (heads, kv_heads) in MODELS.items():
        rows = Rows(arguments.out, "attention", model)
        for sequences, tokens in DECODE:
            read = sequences * tokens * 2 * kv_heads * HEAD_DIM * 2
            for system, run in decode(sequences, tokens, heads, kv_heads).items():
                case, us = f"decode {sequences} x {tokens}", measure(run)
                rows.add(case, "attention_layer_us", us, "us", read / bandwidth() * 1e6, system, traffic(read, us))
        for sequences, tokens, context in PREFILL:
            seen = tokens * context + tokens * (tokens + 1) // 2
            read = sequences * (context + tokens) * 2 * kv_heads * HEAD_DIM * 2
            floor = max(sequences * seen * 4 * heads * HEAD_DIM / matrix_rate(), read / bandwidth())
            for system, run in prefill(sequences, tokens, context, heads, kv_heads).items():
                case = f"prefill {sequences} x {tokens} after {context}"
                rows.add(case, "attention_layer_us", measure(run), "us", floor * 1e6, system)


if __name__ == "__main__":
    main()
