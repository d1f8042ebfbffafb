"""The capture of CUDA graphs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

_Result = TypeVar("_Result")


def capture(run: Callable[[], _Result], memory: Any) -> tuple[torch.cuda.CUDAGraph, _Result]:
    """Return a graph of what ``run`` launches, and the tensors that each replay writes.

    ``memory`` is the pool of memory that it shares with other graphs. ``run`` is called twice.
    """
    run()  # compile the remaining kernels outside the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # Other threads may allocate page-locked memory meanwhile. Garbage collection in this thread is off: the
    # destruction of CUDA objects, such as an earlier engine's graphs, would abort the capture.
    with _no_garbage_collection(), torch.cuda.graph(graph, pool=memory, capture_error_mode="thread_local"):
        result = run()
    return graph, result


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
