"""Kernels compiled in processes of their own while the weights load.

Which ones follows from a model without weights on torch's meta device, put through the same steps as at the start: so
the list cannot miss what the code launches. The processes are forked before this one uses CUDA, and never use it.
"""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import torch
import triton

from lora_engine.config import EngineConfig
from lora_engine.graph_runner import GraphInputs
from lora_engine.memory.page_pool import PagePool
from lora_engine.model.graph_shapes import graph_sizes, usual_graphs
from lora_engine.sampling import greedy_tokens
from lora_kernels.launches import KernelJob, compile_for, compile_kernel, recorded_launches

from .model.config import ModelConfig
from .model.errors import UnsupportedModel
from .model.loading import build_transformer, choose_dtype, quantises
from .model.parallel import Parallel
from .model.warm_up import prefill_steps
from .model.weights import load_weights

log = logging.getLogger(__name__)

MOST_PROCESSES = 16
_PAGES = 4096  # of a pool that holds nothing
_CACHE_VARIABLE = "TRITON_CACHE_DIR"
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def compile_ahead(config: EngineConfig) -> CompileAhead | None:
    """Begin, if there is such a GPU. The cache of kernels is below the data folder from now on."""
    capability = compute_capability(config.device)
    if capability is None:
        return None
    _use_cache(config.data_dir / "kernels")
    return CompileAhead(config, capability)


class CompileAhead:
    """Compiles what an engine of ``config`` will launch. To be made before CUDA is used, by the main thread."""

    def __init__(self, config: EngineConfig, capability: tuple[int, int]) -> None:
        self.kernels = 0
        self.seconds = 0.0
        self._started = time.perf_counter()
        self._compiled = 0
        processes = min(MOST_PROCESSES, max(1, len(os.sched_getaffinity(0)) - 1))
        self._processes = ProcessPoolExecutor(processes, get_context("fork"), _start_process, (capability,))
        listing = self._processes.submit(kernels_of, config)  # forks them all
        self._thread = threading.Thread(target=self._run, args=(listing,), name="compile-ahead", daemon=True)
        self._thread.start()

    def wait(self, progress: Callable[[float], None] = lambda share: None) -> None:
        """Until all are compiled. One that fails is logged; it is compiled when it is first used."""
        while self._thread.is_alive():
            self._thread.join(0.2)
            progress(self._compiled / max(self.kernels, 1))
        log.info("%d kernels are in the cache after %.1f s", self._compiled, self.seconds)

    def stop(self) -> None:
        self._processes.shutdown(wait=False, cancel_futures=True)

    def _run(self, listing: Future[list[KernelJob]]) -> None:
        try:
            jobs = listing.result()
            self.kernels = len(jobs)
            left: set[Future[str]] = {self._processes.submit(compile_kernel, job) for job in jobs}
            while left:
                done, left = wait(left, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
                    self._compiled += 1
        except UnsupportedModel:
            """Loading it, which goes on meanwhile, says the same."""
        except Exception:
            log.warning("kernels are compiled when they are first used, not ahead", exc_info=True)
        self.seconds = time.perf_counter() - self._started
        self.stop()


def _start_process(capability: tuple[int, int]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent says when to end
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    torch.set_num_threads(1)
    compile_for(*capability)


@torch.inference_mode()
def kernels_of(config: EngineConfig) -> list[KernelJob]:
    """Every kernel that steps of usual batches launch, each as it is specialised. Prompts' come first."""
    model_config = ModelConfig.load(config.model)
    dtype, device = choose_dtype(config.dtype, torch.device("cuda")), torch.device("meta")
    weights = load_weights(config.model, model_config, device, dtype, Parallel(), quantises(config))
    max_context = min(config.max_context or model_config.max_position, model_config.max_position)
    without = replace(config, device="meta", backend="triton", mode="unmerged")
    model, _ = build_transformer(without, model_config, weights, max_context, Parallel())
    pool = PagePool(model.shape.pool_geometry(config.page_tokens), _PAGES, dtype, device)
    largest = graph_sizes(config.max_running)[-1]
    inputs = GraphInputs(model, pool, largest, max_context)
    with recorded_launches() as jobs:
        prefill_steps(model, pool, layers=model.layer_kinds)
        for shape in usual_graphs(config.max_running) if config.cuda_graphs else []:
            ids, out = torch.zeros(shape.size, dtype=torch.int64, device=device), inputs.logits[: shape.size]
            greedy_tokens(model.run(ids, None, inputs.plan(shape), out=out, layers=model.layer_kinds))
    return jobs


def _use_cache(folder: Path) -> None:
    """Keep compiled kernels below ``folder``, unless ``TRITON_CACHE_DIR`` names a place.

    Triton's keys hold the source, the compiler and the options, so nothing stale is ever used; what another version of
    it compiled is removed.
    """
    if os.environ.get(_CACHE_VARIABLE):
        return
    own = folder / f"triton-{triton.__version__}"
    for other in folder.glob("triton-*"):
        if other != own:
            shutil.rmtree(other, ignore_errors=True)
    own.mkdir(parents=True, exist_ok=True)
    os.environ[_CACHE_VARIABLE] = str(own)


def compute_capability(device: str) -> tuple[int, int] | None:
    """Of a device such as ``cuda:1``, from the driver: torch would start CUDA here. None: there is no such GPU."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    number, handle = torch.device(device).index or 0, ctypes.c_int()
    values = [ctypes.c_int() for _ in (_MAJOR, _MINOR)]
    failed = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(handle), number)
    for attribute, value in zip((_MAJOR, _MINOR), values, strict=True):
        failed = failed or cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, handle)
    return None if failed else (values[0].value, values[1].value)
