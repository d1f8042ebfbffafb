"""Compiles the sampling kernels for a GPU, without having one.

Run as a program: it needs the real compiler, while the tests' process has Triton's interpreter. It compiles each pair
of options once; with `every` as its argument, each combination.
"""

from __future__ import annotations

import sys
from itertools import product
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from lora_kernels import sampling
from lora_kernels.sampling_parameters import ROW_WORDS

TYPES = {
    "words_ptr": "*i64", "floats_ptr": "*fp32", "values_ptr": "*fp32", "tokens_ptr": "*i32", "out_ptr": "*i64",
    "masks_ptr": "*i32", "words": "i32", "logits_stride": "i32", "vocab": "i32", "num_splits": "i32",
}  # fmt: skip


def compile_for_gpu(kernel: Any, logits: str, warps: int, **constants: int) -> None:
    """Compile a kernel for logits of this Triton type; raises Triton's ``CompilationError``."""
    names = [parameter.name for parameter in kernel.params]
    types = {**TYPES, "logits_ptr": logits}
    signature = {name: "constexpr" if name in constants else types[name] for name in names}
    source = ASTSource(kernel, signature, {(names.index(name),): value for name, value in constants.items()}, {})
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})


if __name__ == "__main__":
    fixed = {"WORDS": ROW_WORDS, "BLOCK": sampling.BLOCK}
    for logits, yes, masked in product(("*bf16", "*fp32"), (True, False), (True, False)):
        if (yes == masked) != (logits == "*bf16") and "every" not in sys.argv:
            continue
        split = {**fixed, "SPLIT_SIZE": sampling.SPLIT_SIZE, "MASKED": masked}
        compile_for_gpu(sampling._partial_argmax_kernel, logits, 8, RANDOM=yes, **split)
        compile_for_gpu(sampling._rejection_kernel, logits, 16, TRUNCATED=yes, NUM_SPLITS=16, MASKED=masked, **fixed)
