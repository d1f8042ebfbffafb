"""Compiles the LoRA kernels for a GPU as their wrappers launch them, without having one.

Run as a program: it needs the real compiler, while the tests' process has Triton's interpreter.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from lora_kernels import expand, shrink
from lora_kernels.forms import Form, LoraShape
from lora_kernels.tables import Group, SlotTables
from lora_kernels.tiles import Span, token_tiles

KV_DIM, PAGE_CHUNKS = 1024, 32
GROUP = Group("qkv", 0, 4096, (4096, 1024, 1024))
KERNELS = (
    (shrink, "_shrink_one_kernel"),
    (shrink, "_shrink_some_kernel"),
    (shrink, "_shrink_kernel"),
    (shrink, "_sum_kernel"),
    (expand, "_expand_one_kernel"),
    (expand, "_expand_kernel"),
)
OPTIONS = ("num_warps", "num_stages", "maxnreg", "launch_pdl")
POINTERS = {torch.bfloat16: "*bf16", torch.float32: "*fp32", torch.int32: "*i32"}


class Recorder:
    """In a kernel's place: compiles what would be launched."""

    def __init__(self, kernel: Any, ptx: dict[str, str]) -> None:
        self._kernel = kernel
        self._ptx = ptx

    def __getitem__(self, grid: Any) -> Any:
        return self._compile

    def _compile(self, *args: Any, **kwargs: Any) -> None:
        options = {k: kwargs.pop(k) for k in OPTIONS if k in kwargs}
        names = [parameter.name for parameter in self._kernel.params]
        values = dict(zip(names, args, strict=False)) | kwargs
        constants = {p.name: values[p.name] for p in self._kernel.params if p.is_constexpr}
        signature = {name: "constexpr" if name in constants else _type_of(values[name]) for name in names}
        # What a launch specialises on: aligned pointers and sizes are what allow wide and asynchronous loads.
        even = [
            n for n in names if n not in constants and (signature[n] != "i32" or values[n] % 16 == 0) and n != "layer"
        ]
        source = ASTSource(
            self._kernel,
            signature,
            {(names.index(name),): value for name, value in constants.items()},
            {(names.index(name),): [["tt.divisibility", 16]] for name in even},
        )
        compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        self._ptx[self._kernel.__name__] = compiled.asm["ptx"]


def _type_of(value: Any) -> str:
    return POINTERS[value.dtype] if isinstance(value, torch.Tensor) else "i32"


def ptx_of(form: Form, tokens: int = 8, dtype: torch.dtype = torch.bfloat16) -> dict[str, str]:
    """PTX of every kernel that the form launches, by name."""
    ptx: dict[str, str] = {}
    originals = [(module, name, getattr(module, name)) for module, name in KERNELS]
    for module in (shrink, expand):
        module.early_start = lambda x: {"PDL": True, "launch_pdl": True}  # type: ignore[attr-defined]
    try:
        for module, name, kernel in originals:
            setattr(module, name, Recorder(kernel, ptx))
        pool = torch.zeros(4, PAGE_CHUNKS * KV_DIM, dtype=dtype)
        x = torch.zeros(tokens, GROUP.in_features, dtype=dtype)
        out = torch.zeros(tokens, sum(GROUP.out_features), dtype=dtype)
        shape = LoraShape(form, 64)
        h = shape.workspace(tokens, GROUP.in_features, 3, "cpu", x.dtype)
        where = (token_tiles([Span(1, 0, tokens, 64)], form), SlotTables(2, 1, 3, "cpu"), 0, GROUP, KV_DIM, shape)
        shrink.lora_shrink(x, pool, h, *where)
        expand.lora_expand(h, pool, out, *where, None)
    finally:
        for module, name, kernel in originals:
            setattr(module, name, kernel)
    return ptx


if __name__ == "__main__":
    json.dump(ptx_of(Form[sys.argv[1]], dtype=getattr(torch, sys.argv[2])), sys.stdout)
