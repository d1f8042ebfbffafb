"""Products of FP8 matrices by tokens: cuBLAS's (``torch._scaled_mm``) beside our kernel's tilings, and bfloat16.

    python benchmarks/fp8_table.py --out benchmarks/results/fp8.jsonl [--shapes llama-3.1-8b] [--tokens 16 64]

Each measurement replays a CUDA graph that walks eight layers, so that weights come from memory; the figure is the
median time of one layer. The floor is the bytes of weights and activations at the rate of a copy. Then what quantises
activations, beside the same without; and the error of every product against float32.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product

import torch
import triton
from kernel_table import LAYERS, measure
from rows import Rows, bandwidth, parser_of

from lora_kernels import fp8
from lora_kernels.elementwise import add_norm, add_norm_and_quantise, gated_activation
from lora_kernels.fp8 import activate_and_quantise, fp8_linear, quantise_rows
from lora_kernels.fp8_tensors import Fp8Matrix, Fp8Rows, quantise
from lora_kernels.hopper_fp8 import Fp8Tiles, fitting, hopper_fp8_linear, tiles_of
from lora_kernels.hopper_fp8_wide import hopper_fp8_wide_linear
from lora_kernels.pdl import pdl_options

SHAPES = {  # outputs, inputs
    "llama-3.1-8b": {"qkv": (6144, 4096), "o": (4096, 4096), "gate_up": (28672, 4096), "down": (4096, 14336)},
    "qwen2.5-7b": {"qkv": (4608, 3584), "o": (3584, 3584), "gate_up": (37888, 3584), "down": (3584, 18944)},
    "llama-3.1-70b, one of two ranks": {
        "qkv": (5120, 8192),
        "o": (8192, 4096),
        "gate_up": (28672, 8192),
        "down": (8192, 14336),
    },
    "llama-3.2-1b": {"qkv": (3072, 2048), "o": (2048, 2048), "gate_up": (16384, 2048), "down": (2048, 8192)},
}
TOKENS = (1, 16, 32, 64, 128, 192, 256, 2048)
Tiling = tuple[int, int, int, int, int, int]


def tilings(tokens: int, outputs: int, inputs: int) -> Iterator[Tiling]:
    """Yield candidates for the best tiling: tokens, outputs and inputs of a tile, programs per sum, warps, stages."""
    block_m = min(128, max(16, triton.next_power_of_2(tokens)))
    if tokens > 64:
        yield (64, 128, 128, 1, 4, 5)
        yield (128, 128, 128, 1, 8, 4)
        return
    for block_n, block_k, programs in product((64, 128), (128, 256), (132, 264, 528)):
        splits = 1
        while triton.cdiv(outputs, block_n) * splits * 2 <= programs and inputs >= 4 * splits * block_k:
            splits *= 2
        stages = min(6, 160_000 // ((block_m + block_n) * block_k))
        yield (block_m, block_n, block_k, splits, 4, stages)


def hopper_tiles(tokens: int, outputs: int, inputs: int) -> set[Fp8Tiles]:
    """Return candidates for the kernel for Hopper GPUs, with one program for each multiprocessor or two."""
    block_m, most_splits = tiles_of(tokens, outputs, inputs).block_m, max(1, 132 // triton.cdiv(outputs, 64))
    memories = (96 << 10, 200 << 10)
    return {fitting(block_m, splits, inputs, shared) for splits, shared in product({1, most_splits}, memories)}


def with_tiling(tiling: Tiling, run: Callable[[], object]) -> None:
    usual = fp8.tiling, fp8.multiplied_on_hopper
    fp8.tiling, fp8.multiplied_on_hopper = lambda *sizes: tiling, lambda *sizes: False
    try:
        run()
    finally:
        fp8.tiling, fp8.multiplied_on_hopper = usual


def table(rows: Rows, name: str, counts: list[int]) -> None:
    for part, (outputs, inputs) in SHAPES[name].items():
        plain = [torch.randn(outputs, inputs, device="cuda", dtype=torch.bfloat16) for _ in range(LAYERS)]
        matrices = [quantise(weight) for weight in plain]
        for tokens in counts:
            one_count(rows, part, tokens, plain, matrices)


def one_count(rows: Rows, part: str, tokens: int, plain: list[torch.Tensor], matrices: list[Fp8Matrix]) -> None:
    outputs, inputs = matrices[0].shape
    x = torch.randn(tokens, inputs, device="cuda", dtype=torch.bfloat16)
    quantised = quantise_rows(x, matrices[0])
    out = torch.empty(tokens, outputs, device="cuda", dtype=torch.bfloat16)
    moved = outputs * inputs + tokens * (inputs + 2 * outputs)

    def add(case: str, us: float, moves: float, **more: object) -> None:
        settings = {"tokens": tokens, "outputs": outputs, "inputs": inputs, **more}
        rows.add(f"{part} {case} {tokens}", "us", us, "us", moves / bandwidth() * 1e6, settings=settings)

    def ours(tiling: Tiling) -> float:
        def run(layer: int) -> None:
            with_tiling(tiling, lambda: fp8_linear(quantised, matrices[layer], torch.bfloat16, None, out))

        return measure(run)

    add("bf16", measure(lambda layer: torch.mm(x, plain[layer].t())), 2 * outputs * inputs)
    us = measure(lambda layer: cublas(quantised, matrices[layer]))
    add("cublas", us, moved, error=error(cublas(quantised, matrices[0]), quantised, matrices[0]))
    times = {}
    for tiling in sorted(set(tilings(tokens, outputs, inputs))):
        times[tiling] = ours(tiling)
        add("triton", times[tiling], moved, tiling=tiling, error=error(out, quantised, matrices[-1]))
    best = min(times, key=times.__getitem__)
    usual = fp8.tiling(tokens, outputs, inputs, False)
    print(f"{part} {tokens}: cublas {us:.1f}, best {times[best]:.1f} us {best}, usual {usual}", flush=True)
    if tokens > 192:
        return
    if tokens > 128:
        for splits in (1, 2, 3):
            options = pdl_options(x)
            us = measure(lambda layer: hopper_fp8_wide_linear(quantised, matrices[layer], None, out, splits, options))  # noqa: B023
            add("gluon, wide", us, moved, splits=splits, error=error(out, quantised, matrices[-1]))
        return
    for tiles in sorted(hopper_tiles(tokens, outputs, inputs)):
        options = pdl_options(x)
        us = measure(lambda layer: hopper_fp8_linear(quantised, matrices[layer], None, out, tiles, options))  # noqa: B023
        add("gluon", us, moved, tiling=tiles, error=error(out, quantised, matrices[-1]))


def cublas(x: Fp8Rows, weight: Fp8Matrix) -> torch.Tensor:
    return torch._scaled_mm(
        x.data, weight.data.t(), scale_a=x.scale, scale_b=weight.scale[None], out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )  # fmt: skip


def error(got: torch.Tensor, x: Fp8Rows, weight: Fp8Matrix) -> float:
    want = (x.data.float() * x.scale) @ weight.dequantised(torch.float32).t()
    return round(float((got.float() - want).norm() / want.norm()), 6)


def quantisers(rows: Rows) -> None:
    """Time the quantising kernels at Llama-3.1-8B's widths, each beside its plain kernel."""
    hidden, inner = 4096, 14336
    weight = torch.ones(hidden, device="cuda", dtype=torch.bfloat16)
    to_hidden, to_inner = (quantise(torch.randn(64, width, device="cuda")) for width in (hidden, inner))
    for tokens in (16, 64, 256, 4096):
        x, residual = (torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        gate_up = torch.randn(tokens, 2 * inner, device="cuda", dtype=torch.bfloat16)
        out, activated = torch.empty_like(x), gate_up[:, :inner].contiguous()
        runs: dict[str, Callable[[], object]] = {
            "norm": lambda: add_norm(x, residual, weight, 1e-5, out),  # noqa: B023
            "norm, quantised": lambda: add_norm_and_quantise(x, residual, weight, 1e-5, to_hidden, False),  # noqa: B023
            "norm, both": lambda: add_norm_and_quantise(x, residual, weight, 1e-5, to_hidden, True),  # noqa: B023
            "activation": lambda: gated_activation(gate_up, activated),  # noqa: B023
            "activation, quantised": lambda: activate_and_quantise(gate_up, to_inner, "silu", False),  # noqa: B023
            "activation, both": lambda: activate_and_quantise(gate_up, to_inner, "silu", True),  # noqa: B023
            "rows, quantised": lambda: quantise_rows(x, to_hidden),  # noqa: B023
        }
        for name, run in runs.items():
            rows.add(name, "us", measure(lambda layer: run()), "us", settings={"tokens": tokens})  # noqa: B023


def compile_first(arguments: argparse.Namespace) -> None:
    """Compile the tilings in many processes, each taking every n-th."""
    count = min(12, os.cpu_count() or 1)
    command = [sys.executable, __file__, "--shapes", *arguments.shapes, "--tokens", *map(str, arguments.tokens)]
    children = [subprocess.Popen([*command, "--compile-only", str(i), str(count)]) for i in range(count)]
    for child in children:
        child.wait()


def compile_share(arguments: argparse.Namespace) -> None:
    index, count = arguments.compile_only
    wanted = [
        (tokens, outputs, inputs, tiling)
        for name in arguments.shapes
        for outputs, inputs in SHAPES[name].values()
        for tokens in arguments.tokens
        for tiling in sorted(set(tilings(tokens, outputs, inputs)))
    ]
    for tokens, outputs, inputs, tiling in wanted[index::count]:
        data = torch.zeros(outputs, inputs, device="cuda").to(torch.float8_e4m3fn)
        matrix = Fp8Matrix(data, torch.ones(outputs, device="cuda"))
        x = quantise_rows(torch.zeros(tokens, inputs, device="cuda", dtype=torch.bfloat16), matrix)
        out = torch.empty(tokens, outputs, device="cuda", dtype=torch.bfloat16)
        with_tiling(tiling, lambda: fp8_linear(x, matrix, torch.bfloat16, None, out))  # noqa: B023


def main() -> None:
    parser = parser_of(__doc__, out=True)
    parser.add_argument("--shapes", nargs="*", default=["llama-3.1-8b"], choices=list(SHAPES))
    parser.add_argument("--tokens", nargs="*", type=int, default=list(TOKENS))
    parser.add_argument("--compile-only", nargs=2, type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.compile_only:
        compile_share(arguments)
        return
    compile_first(arguments)
    for name in arguments.shapes:
        table(Rows(arguments.out, "fp8", name), name, arguments.tokens)
    quantisers(Rows(arguments.out, "fp8", "llama-3.1-8b"))


if __name__ == "__main__":
    main()
