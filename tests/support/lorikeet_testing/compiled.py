"""Takes kernels' launches as their wrappers make them, and compiles them for a GPU without having one.

Compiling needs the real compiler, while the tests' process may have Triton's interpreter: `compiler_process`.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from lora_kernels import (
    attention,
    elementwise,
    epilogue,
    expand,
    expert_lora,
    experts,
    fp8,
    gated_delta,
    hopper_fp8,
    hopper_fp8_wide,
    hopper_prefill,
    invariant_decode,
    invariant_linear,
    ring_attention,
    sampling,
    short_convolution,
    shrink,
    skinny_linear,
)
from lorikeet_testing.forked import run_forked

MODULES = (
    attention,
    elementwise,
    epilogue,
    expand,
    expert_lora,
    experts,
    fp8,
    gated_delta,
    hopper_fp8,
    hopper_fp8_wide,
    hopper_prefill,
    invariant_decode,
    invariant_linear,
    ring_attention,
    sampling,
    short_convolution,
    shrink,
    skinny_linear,
)
OPTIONS = ("num_warps", "num_stages", "maxnreg", "launch_pdl")
POINTERS = {
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.float8_e4m3fn: "*fp8e4nv",
    torch.int32: "*i32",
    torch.uint8: "*u8",
    torch.int16: "*i16",
    torch.int64: "*i64",
}


@dataclass(frozen=True)
class Launch:
    """A kernel launch: the kernel, its arguments and compile options."""

    kernel: Any
    arguments: dict[str, Any]
    options: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.kernel.__name__)

    def source(self) -> ASTSource:
        """Return the kernel's source, specialised as for a launch on a GPU.

        Aligned pointers and sizes allow wide and asynchronous loads.
        """
        names = [parameter.name for parameter in self.kernel.params]
        constants = {p.name: self.arguments[p.name] for p in self.kernel.params if p.is_constexpr}
        signature = {name: "constexpr" if name in constants else _type_of(self.arguments[name]) for name in names}
        even = [name for name in names if signature[name].startswith("*")]
        even += [n for n in names if signature[n] == "i32" and n != "layer" and self.arguments[n] % 16 == 0]
        source = GluonASTSource if self.kernel.is_gluon() else ASTSource
        return source(
            self.kernel,
            signature,
            {(names.index(name),): value for name, value in constants.items()},
            {(names.index(name),): [["tt.divisibility", 16]] for name in even},
        )

    def compile(self) -> Any:
        """Compile for a Hopper GPU; raises the errors of Triton's compiler."""
        return triton.compile(self.source(), target=GPUTarget("cuda", 90, 32), options=self.options)


def stack_bytes(compiled: Any) -> int:
    """Return the memory that a thread of a compiled kernel keeps registers in; PTX has any number of registers."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(compiled.asm["cubin"])
        cubin.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", cubin.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return sum(map(int, re.findall(r"\b(?:STACK|LOCAL):(\d+)", usage)))


class _Recorder:
    """A stand-in for a kernel that records its launches."""

    def __init__(self, kernel: Any, take: Callable[[Launch], None]) -> None:
        self._kernel = kernel
        self._take = take

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, **kwargs: Any) -> None:
            options = {k: kwargs.pop(k) for k in OPTIONS if k in kwargs}
            names = inspect.signature(self._kernel.fn).parameters
            self._take(Launch(self._kernel, dict(zip(names, args, strict=False)) | kwargs, options))

        return launch


def _type_of(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return POINTERS[value.dtype]
    if isinstance(value, TensorDescriptor):
        block = ", ".join(map(str, value.block_shape))
        return f"tensordesc<{POINTERS[value.base.dtype].removeprefix('*')}[{block}],{value.layout!r}>"
    return "fp32" if isinstance(value, float) else "i32"


@contextmanager
def compiling(take: Callable[[Launch], None]) -> Iterator[None]:
    """Meanwhile, every launch of a kernel of ours is handed to ``take``, and nothing runs."""
    kept: list[tuple[ModuleType, str, Any]] = []
    for module in MODULES:
        for name in [n for n in vars(module) if n.endswith("_kernel")]:
            kept.append((module, name, getattr(module, name)))
            setattr(module, name, _Recorder(kept[-1][2], take))
        if hasattr(module, "pdl_options"):
            kept.append((module, "pdl_options", module.pdl_options))
            module.pdl_options = lambda x: {"PDL": True, "launch_pdl": True}
        if hasattr(module, "is_hopper"):
            kept.append((module, "is_hopper", module.is_hopper))
            module.is_hopper = lambda device: True
        if hasattr(module, "has_sm90"):
            kept.append((module, "has_sm90", module.has_sm90))
            module.has_sm90 = lambda device: True
    try:
        yield
    finally:
        for module, name, value in kept:
            setattr(module, name, value)


def compiler_process(module: str, *arguments: str, timeout: float = 300) -> str:
    """Run a program of this package with Triton's compiler instead of its interpreter; return what it prints."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [f"lorikeet_testing.{module}", *arguments]
    done = run_forked(command, env=env, folder=Path.cwd(), timeout=timeout, engine=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
