"""The kernel launches of a model's steps, for the shapes of published models and without a GPU.

Run as a program, it compiles that: `python -m lorikeet_testing.compiled_shapes bfloat16 norms Qwen2.5-7B …` prints a
line for each fault, and at last how many kernels it compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import torch

from lora_engine.model.families import FAMILIES
from lora_kernels.attention import (
    PREFILL_TILE_FIELDS,
    DecodeWorkspace,
    PrefillWorkspace,
    decode_splits,
    paged_decode,
    paged_prefill,
)
from lora_kernels.elementwise import add_norm, add_norm_and_quantise, gated_activation, rope_and_write_kv, sum_rows
from lora_kernels.expand import lora_expand
from lora_kernels.fp8 import activate_and_quantise, fp8_linear, quantise_rows
from lora_kernels.fp8_tensors import FP8, Fp8Matrix, fits
from lora_kernels.hopper_prefill import TILE_ROWS, can_attend
from lora_kernels.invariant_decode import invariant_decode
from lora_kernels.invariant_linear import invariant_linear
from lora_kernels.kernel_variants import KernelVariant, LoraShape
from lora_kernels.sampling import sample_tokens
from lora_kernels.sampling_parameters import ROW_WORDS
from lora_kernels.shrink import lora_shrink
from lora_kernels.skinny_linear import skinny_linear
from lora_kernels.tables import SlotTables
from lora_kernels.work_items import Span, token_tiles

from .compiled import Launch, compiling
from .model_shapes import SHAPES, Shape, family_of

SHARED_BYTES = 227 * 2**10  # of a multiprocessor, for one program
PAGE_TOKENS = 16
LENGTH = 2048


def elements(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Sizes and strides are all that a launch looks at."""
    return torch.empty(*shape, dtype=dtype, device="meta")


def launch_norms(shape: Shape, tokens: int, dtype: torch.dtype) -> None:
    x, weight = elements(tokens, shape.hidden, dtype=dtype), elements(shape.hidden, dtype=dtype)
    for residual in (None, x):
        add_norm(x, residual, weight, 1e-5, x)
    add_norm(x, x, weight, 1e-5, x, addends=elements(2, dtype=torch.int64))  # of two ranks
    sum_rows(x, elements(4, dtype=torch.int64), 1)  # of four, in two parts


def launch_small(shape: Shape, tokens: int, dtype: torch.dtype) -> None:
    """Launch the kernels between the matrix products: norms, activation, rotary embedding."""
    launch_norms(shape, tokens, dtype)
    gated_activation(elements(tokens, 2 * shape.inner, dtype=dtype), elements(tokens, shape.inner, dtype=dtype))
    launch_rope(shape, tokens, dtype, pool_of(shape, dtype))


def launch_rope(shape: Shape, tokens: int, dtype: torch.dtype, pool: torch.Tensor) -> None:
    qkv = elements(tokens, (shape.heads + 2 * shape.kv_heads) * shape.head_dim, dtype=dtype)
    table, positions = elements(LENGTH, shape.head_dim, dtype=dtype), elements(tokens, dtype=torch.int32)
    for norm in (None, elements(shape.head_dim, dtype=dtype)):
        rope_and_write_kv(
            qkv, table, table, positions, positions, pool, heads=shape.heads, kv_heads=shape.kv_heads,
            head_dim=shape.head_dim, page_tokens=PAGE_TOKENS, q_norm=norm, k_norm=norm, eps=1e-6,
        )  # fmt: skip


def launch_attention(
    shape: Shape, tokens: int, dtype: torch.dtype, softcap: float = 0.0, kv_dtype: torch.dtype | None = None
) -> None:
    q = elements(tokens, shape.heads * shape.head_dim, dtype=dtype)
    table, lengths = elements(tokens, LENGTH // PAGE_TOKENS, dtype=torch.int32), elements(tokens, dtype=torch.int32)
    sizes = {"heads": shape.heads, "kv_heads": shape.kv_heads, "page_tokens": PAGE_TOKENS}
    workspace = DecodeWorkspace(tokens, shape.heads, shape.head_dim, 32, "meta")
    splits = decode_splits(tokens, shape.kv_heads)
    pool = pool_of(shape, kv_dtype or dtype)
    splits_of_prompts = PrefillWorkspace(shape.kv_heads, shape.head_dim, "meta")
    tiles = elements(4, PREFILL_TILE_FIELDS, dtype=torch.int32)
    for window in (0, 1024):
        sizes |= {"window": window, "softcap": softcap}
        paged_decode(q, pool, table, lengths, q, workspace, splits=splits, **sizes)
        for width, split_keys in ((LENGTH // PAGE_TOKENS, False), (LENGTH // PAGE_TOKENS, True), (1, False)):
            paged_prefill(
                q, pool, table[:, :width], tiles, q, workspace=splits_of_prompts, split_keys=split_keys, **sizes
            )
        launch_on_hopper(q, pool, table, tiles, shape, sizes)


def launch_on_hopper(
    q: torch.Tensor, pool: torch.Tensor, table: torch.Tensor, tiles: torch.Tensor, shape: Shape, sizes: dict[str, Any]
) -> None:
    """Launch prefill attention as on a Hopper GPU, if its kernel supports the shape."""
    if not can_attend(shape.heads, shape.kv_heads, shape.head_dim, PAGE_TOKENS, q.dtype, pool.dtype, q.device):
        return
    workspace = PrefillWorkspace(shape.kv_heads, shape.head_dim, "meta", TILE_ROWS)
    for split_keys in (False, True):
        paged_prefill(
            q,
            pool,
            table,
            tiles,
            q,
            block_m=TILE_ROWS,
            workspace=workspace,
            split_keys=split_keys,
            hopper=True,
            **sizes,
        )


def products_of(shape: Shape) -> tuple[tuple[int, int], ...]:
    """Return outputs and inputs of the matrices of a layer."""
    heads = shape.heads * shape.head_dim
    return (
        (heads + 2 * shape.kv_dim, shape.hidden), (shape.hidden, heads), (2 * shape.inner, shape.hidden),
        (shape.hidden, shape.inner),
    )  # fmt: skip


def launch_skinny(shape: Shape, dtype: torch.dtype) -> None:
    for outputs, inputs in products_of(shape):
        weight = elements(outputs, inputs, dtype=dtype)
        for tokens in (1, 32):
            x = elements(tokens, inputs, dtype=dtype)
            for onto in (None, elements(tokens, outputs, dtype=dtype)):
                skinny_linear(x, weight, onto)


def launch_invariant(shape: Shape, dtype: torch.dtype) -> None:
    """Launch the kernels that only batch-invariant execution uses."""
    heads = shape.heads * shape.head_dim
    for outputs, inputs in products_of(shape):
        weight = elements(outputs, inputs, dtype=dtype)
        for tokens in (1, 32, 64, 128, 2048):
            invariant_linear(elements(tokens, inputs, dtype=dtype), weight, elements(outputs, dtype=dtype))
    sizes = {"heads": shape.heads, "kv_heads": shape.kv_heads, "page_tokens": PAGE_TOKENS}
    pool, workspace = pool_of(shape, dtype), DecodeWorkspace(8, shape.heads, shape.head_dim, 32, "meta")
    q, tiles = elements(8, heads, dtype=dtype), elements(4, PREFILL_TILE_FIELDS, dtype=torch.int32)
    table, lengths = elements(8, LENGTH // PAGE_TOKENS, dtype=torch.int32), elements(8, dtype=torch.int32)
    for window in (0, 1024):
        invariant_decode(q, pool, table, lengths, q, workspace, window=window, **sizes)
        paged_prefill(q, pool, table, tiles, q, window=window, invariant=True, **sizes)
    for variant in (KernelVariant.GROUPED, KernelVariant.PREFILL):
        launch_lora(shape, variant, 64, 64, dtype, invariant=True)


def launch_lora(
    shape: Shape, variant: KernelVariant, tokens: int, rank: int, dtype: torch.dtype, invariant: bool = False
) -> None:
    lora, pool = LoraShape(variant, rank, invariant), pool_of(shape, dtype)
    h = lora.workspace(tokens, max(group.in_features for group in shape.groups), 3, "meta", dtype)
    tiles, tables = token_tiles([Span(1, 0, tokens, rank)], variant), SlotTables(2, 1, 3, "cpu")
    for group in shape.groups:
        where = (tiles, tables, 0, group, shape.kv_dim, lora)
        lora_shrink(elements(tokens, group.in_features, dtype=dtype), pool, h, *where)
        out = elements(tokens, sum(group.out_features), dtype=dtype)
        for onto in (None, out):
            lora_expand(h, pool, out, *where, onto)


def launch_sampling(shape: Shape, dtype: torch.dtype) -> None:
    logits = elements(4, shape.vocab, dtype=dtype)
    sample_tokens(logits)
    for truncated in (False, True):
        sample_tokens(logits, elements(4, ROW_WORDS, dtype=torch.int64), truncated=truncated)


def pool_of(shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    return elements(4, 2 * PAGE_TOKENS * shape.kv_dim, dtype=dtype)


def launch_everything(shape: Shape, dtype: torch.dtype) -> None:
    for tokens in (1, 256, 2048):
        launch_small(shape, tokens, dtype)
        launch_attention(shape, tokens, dtype)
    for variant, rank in product(KernelVariant, (16, 256)):
        launch_lora(shape, variant, 64, rank, dtype)
    launch_sampling(shape, dtype)


def launch_fp8(shape: Shape, dtype: torch.dtype, in_blocks: bool) -> None:
    """Products of every matrix of a layer, and what quantises their activations."""

    def matrix(outputs: int, inputs: int) -> Fp8Matrix:
        scale = (-(-outputs // 128), -(-inputs // 128)) if in_blocks else (outputs,)
        return Fp8Matrix(elements(outputs, inputs, dtype=FP8), elements(*scale, dtype=torch.float32))

    heads = shape.heads * shape.head_dim
    qkv, out = matrix(heads + 2 * shape.kv_dim, shape.hidden), matrix(shape.hidden, heads)
    gate_up, down = matrix(2 * shape.inner, shape.hidden), matrix(shape.hidden, shape.inner)
    norm = elements(shape.hidden, dtype=dtype)
    for tokens in (1, 64, 2048):
        x = elements(tokens, shape.hidden, dtype=dtype)
        for full in (False, True):
            rows = add_norm_and_quantise(x, x, norm, 1e-5, qkv, full)
            inner = activate_and_quantise(elements(tokens, 2 * shape.inner, dtype=dtype), down, "silu", full)
        attended = quantise_rows(elements(tokens, heads, dtype=dtype), out)
        for quantised, weight in ((rows, qkv), (rows, gate_up), (attended, out), (inner, down)):
            if fits(weight):
                fp8_linear(quantised, weight, dtype, elements(weight.shape[0], dtype=dtype))


def launch_fp8_kv(shape: Shape, dtype: torch.dtype) -> None:
    """Launch the kernels that write and read keys and values in FP8."""
    for tokens in (1, 256, 2048):
        launch_rope(shape, tokens, dtype, pool_of(shape, FP8))
        launch_attention(shape, tokens, dtype, kv_dtype=FP8)


def launch_family(name: str, dtype: torch.dtype) -> None:
    """The kernels in which a model's family differs from Llama, as it launches them."""
    shape, family, tokens = SHAPES[name], FAMILIES[family_of(name)], 64
    norm, rope = family.norm, family.rope
    x = elements(tokens, shape.hidden, dtype=dtype)
    weight_dtype = dtype if norm.rounded_first else torch.float32
    weight = elements(shape.hidden, dtype=weight_dtype)
    for residual in (None, x):
        add_norm(
            x, residual, weight, 1e-5, x, scale=0.5 if family.residual_scale else 1.0, centred=norm.centred,
            rounded_first=norm.rounded_first,
        )  # fmt: skip
    for activation in ("silu", "gelu_tanh"):
        gate_up = elements(tokens, 2 * shape.inner, dtype=dtype)
        gated_activation(gate_up, elements(tokens, shape.inner, dtype=dtype), activation)
    qkv = elements(tokens, (shape.heads + 2 * shape.kv_heads) * shape.head_dim, dtype=dtype)
    table, positions = elements(LENGTH, shape.head_dim, dtype=dtype), elements(tokens, dtype=torch.int32)
    head_norm = elements(shape.head_dim, dtype=weight_dtype) if family.qk_norm == "head" else None
    rope_and_write_kv(
        qkv, table, table, positions, positions, pool_of(shape, dtype), heads=shape.heads, kv_heads=shape.kv_heads,
        head_dim=shape.head_dim, page_tokens=PAGE_TOKENS, q_norm=head_norm, k_norm=head_norm, eps=1e-6,
        rounded_first=norm.rounded_first, rotary_dim=shape.head_dim * 3 // 4 if rope.partial else shape.head_dim,
        interleaved=rope.interleaved,
    )  # fmt: skip
    softcap = 50.0 if family.attention_softcap else 0.0
    for sequences in (1, 256):
        launch_attention(shape, sequences, dtype, softcap)


PARTS: dict[str, Callable[[str, torch.dtype], None]] = {
    "norms": lambda name, dtype: launch_norms(SHAPES[name], 256, dtype),
    "family": launch_family,
    "fp8": lambda name, dtype: launch_fp8(SHAPES[name], dtype, in_blocks=False),
    "fp8 blocks": lambda name, dtype: launch_fp8(SHAPES[name], dtype, in_blocks=True),
    "fp8 kv": lambda name, dtype: launch_fp8_kv(SHAPES[name], dtype),
    "invariant": lambda name, dtype: launch_invariant(SHAPES[name], dtype),
    "few tokens": lambda name, dtype: launch_skinny(SHAPES[name], dtype),
    "everything": lambda name, dtype: launch_everything(SHAPES[name], dtype),
}


def launches(name: str, part: str, dtype: torch.dtype) -> list[Launch]:
    """Return the launches of one part of the model's steps."""
    recorded: list[Launch] = []
    with compiling(recorded.append):
        PARTS[part](name, dtype)
    return recorded


def faults(name: str, launch: Launch) -> list[str]:
    """Return why a launch could not run on the GPU; empty if it could."""
    try:
        shared = launch.compile().metadata.shared
    except Exception as error:
        return [f"{name}: {launch.name} {launch.options}: {type(error).__name__}: {error}"]
    return [f"{name}: {launch.name} needs {shared} bytes of shared memory"] if shared > SHARED_BYTES else []


def main(dtype: str, part: str, names: list[str]) -> None:
    compiled: set[tuple[str, str]] = set()
    for name in names:
        for launch in launches(name, part, getattr(torch, dtype)):
            key = (launch.source().hash(), str(launch.options))
            if key not in compiled:
                compiled.add(key)
                for fault in faults(name, launch):
                    print(fault, flush=True)
    print(len(compiled))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
