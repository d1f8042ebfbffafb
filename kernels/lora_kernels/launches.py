"""Compilation of kernels ahead of their first launch: record launches without a GPU, then compile each by name.

Wrappers of kernels are called with tensors on torch's meta device, which have shapes and strides but no contents. Each
launch is recorded as Triton's specialisation data, which any process can compile into the cache of compiled kernels
(``TRITON_CACHE_DIR``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

log = logging.getLogger(__name__)

# Compute capability that this process compiles for, set by ``compile_for``.
capability = (0, 0)


class KernelJob(NamedTuple):
    """A kernel with its specialisation."""

    module: str
    name: str
    specialisation: str


class _Target:
    """A driver without a device, with the methods that compilation calls."""

    def __init__(self, target: GPUTarget) -> None:
        self._target = target

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compute_cache_keys() -> None:
    """Make each kernel's key in the cache of compiled kernels the same in every process.

    Triton computes a function's key on first use, and omits the constants of called functions whose keys were not
    computed before: the key then depends on the order of compilation. Here the keys of called functions come first.
    """
    computed: set[int] = set()
    for module in iter_modules([str(Path(__file__).parent)]):
        for value in list(vars(import_module(f"{__package__}.{module.name}")).values()):
            if isinstance(value, JITFunction):
                _compute_key(value, computed)


def _compute_key(function: JITFunction[Any], computed: set[int]) -> None:
    if id(function) in computed:
        return
    computed.add(id(function))
    code = function.fn.__code__
    for name in code.co_names:
        called = function.fn.__globals__.get(name)
        if isinstance(called, JITFunction):
            _compute_key(called, computed)
    assert function.cache_key


def capability_of(device: torch.device) -> tuple[int, int]:
    """Return the compute capability of a GPU, or, for the meta device, that which this process compiles for.

    It is (0, 0) for other devices.
    """
    if device.type == "meta":
        return capability
    return _capability_of_gpu(device) if device.type == "cuda" else (0, 0)


@cache
def _capability_of_gpu(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


def compile_for(major: int, minor: int) -> None:
    """Make this process compile for GPUs of that compute capability; it can launch nothing afterwards."""
    global capability
    compute_cache_keys()
    capability = (major, minor)
    driver.set_active(_Target(GPUTarget("cuda", 10 * major + minor, 32)))


@contextmanager
def recorded_launches() -> Iterator[list[KernelJob]]:
    """Record launches instead of compiling, each kernel and specialisation once; the list is filled at the end."""
    jobs: dict[KernelJob, None] = {}
    recorded: list[KernelJob] = []

    def record(*, fn: Any, compile: dict[str, Any], **_other: Any) -> bool:
        jobs.setdefault(KernelJob(fn.module, fn.name, compile["specialization_data"]))
        return True  # do not compile

    triton.knobs.runtime.jit_cache_hook = record
    try:
        yield recorded
    finally:
        triton.knobs.runtime.jit_cache_hook = None
        recorded.extend(jobs)


def compile_kernel(job: KernelJob) -> str:
    """Compile a kernel into the cache unless it is there, and return its name. Call ``compile_for`` first."""
    getattr(import_module(job.module), job.name).preload(job.specialisation)
    return job.name


def log_compilations() -> None:
    """Log each kernel that this process compiles from now on: its first launch waits for the compilation."""

    def compiled(*, src: Any, times: Any, cache_hit: bool, **_other: Any) -> None:
        if not cache_hit:
            details = {"constants": str(src.constants), "signature": str(src.signature), "attributes": str(src.attrs)}
            log.debug("compiled %s at its first use in %.1f s", src.name, times.total / 1e6, extra=details)

    triton.knobs.compilation.listener = compiled
