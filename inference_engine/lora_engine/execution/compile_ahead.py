"""The compilation of kernels in separate processes while the weights load.

The list of kernels is recorded from a model without weights on torch's meta device, which runs the same steps as the
start: so the list cannot miss a launch of the code. The processes are forked before this one uses CUDA, and never use
it; each records a part. No process is needed if an earlier start with the same model, settings and code compiled all.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import active_children, get_context
from pathlib import Path

import torch
import triton

import lora_engine
import lora_kernels
from lora_engine.config import EngineConfig
from lora_engine.errors import UnsupportedModel
from lora_engine.execution.graph_runner import GraphInputs
from lora_engine.memory.page_pool import PagePool
from lora_engine.model.config import ModelConfig
from lora_engine.model.graph_shapes import drafted_graphs, drafted_rows, graph_rows, graph_sizes, usual_graphs
from lora_engine.model.loading import build_transformer, choose_dtype, fp8_kv, quantises
from lora_engine.model.parallel import Parallel, PartialSum, in_two_parts
from lora_engine.model.triton_ops import USUAL_RANKS
from lora_engine.model.warm_up import prefill_steps
from lora_engine.model.weight_loading import load_weights
from lora_kernels.elementwise import sum_rows
from lora_kernels.launches import KernelJob, compile_for, compile_kernel, recorded_launches
from lora_kernels.peer_sums import meet

log = logging.getLogger(__name__)

# Maximum number of compiling processes.
MAX_PROCESSES = 16
# Pages of the pool on the meta device.
_PAGES = 4096
_SETTINGS = (
    "dtype", "quantization", "kv_cache_dtype", "adapter_dtype", "expert_residency", "deterministic", "max_context",
    "max_running", "page_tokens", "max_lora_rank", "tensor_parallel", "lora_sharding", "fused_sum_mb",
    "speculation", "speculation_tokens",
)  # fmt: skip
_CACHE_VARIABLE = "TRITON_CACHE_DIR"
# CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
_MAJOR, _MINOR = 75, 76
# Option PR_SET_PDEATHSIG of prctl, which ends a process with its parent.
_PARENT_DEATH_SIGNAL = 1
# Seconds that the driver may take to report the compute capability.
_ASK_S = 20.0
# Seconds without a further kernel after which the rest is compiled at first use instead.
_STALL_S = 30.0


def compile_ahead(config: EngineConfig) -> CompileAhead | CompiledBefore | None:
    """Start the compilation if there is such a GPU, and put the kernel cache below the data folder."""
    capability = compute_capability(config.device)
    if capability is None:
        return None
    use_cache(config.data_dir)
    _remove_old_caches(config.data_dir)
    known = CompiledBefore(Path(os.environ[_CACHE_VARIABLE]), config, capability)
    return known if known.kernels else CompileAhead(config, capability, known)


class CompiledBefore:
    """A record in the cache that all kernels of a model are compiled; its loss costs a start a few seconds."""

    def __init__(self, cache: Path, config: EngineConfig, capability: tuple[int, int]) -> None:
        self._cache = cache
        self._note = cache / f"compiled-{_key(config, capability)}.json"

    @property
    def kernels(self) -> int:
        """Number of compiled kernels; 0 if it is unknown, or if some were removed."""
        try:
            kernels = int(json.loads(self._note.read_text())["kernels"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0
        return kernels if sum(1 for _ in self._cache.glob("*/*.cubin")) >= kernels else 0

    def wait(self, progress: Callable[[float], None] = lambda share: None) -> bool:
        """Return True at once: all kernels are compiled."""
        log.info("%d kernels are in the cache from an earlier start", self.kernels)
        return True

    def stop(self) -> None:
        """Do nothing: no process runs."""

    def remember(self, kernels: int) -> None:
        try:
            self._note.write_text(json.dumps({"kernels": kernels}))
        except OSError as error:
            log.warning("the record of compiled kernels was not written; the next start lists them again: %s", error)


def _key(config: EngineConfig, capability: tuple[int, int]) -> str:
    """Return a key of everything that determines the kernels: code, model, settings and device."""
    code = hashlib.sha256()
    for package in (lora_engine, lora_kernels):
        for path in sorted(Path(package.__path__[0]).rglob("*.py")):
            code.update(path.read_bytes())
    settings = {name: str(getattr(config, name)) for name in _SETTINGS}
    text = json.dumps([code.hexdigest(), torch.__version__, triton.__version__, capability, settings])
    model = (config.model / "config.json").read_bytes() if (config.model / "config.json").is_file() else b""
    return hashlib.sha256(text.encode() + model).hexdigest()[:32]


class CompileAhead:
    """A compilation of the kernels that an engine launches; create it in the main thread before CUDA is used."""

    def __init__(self, config: EngineConfig, capability: tuple[int, int], known: CompiledBefore | None = None) -> None:
        self._known = known
        self.kernels = 0
        self.seconds = 0.0
        self._started = time.perf_counter()
        self._compiled = 0
        self._usual = threading.Event()
        processes = min(MAX_PROCESSES, max(1, len(os.sched_getaffinity(0)) - 1))
        self._processes = ProcessPoolExecutor(processes, get_context("fork"), _start_process, (capability,))
        listings = [self._processes.submit(kernels_of, config, part, processes) for part in range(processes)]
        self._thread = threading.Thread(target=self._run, args=(listings,), name="compile-ahead", daemon=True)
        self._thread.start()

    def wait(self, progress: Callable[[float], None] = lambda share: None) -> bool:
        """Wait until the kernels of usual batches are compiled; returns whether all are.

        The first launch of any other kernel compiles it.
        """
        compiled, since = -1, time.monotonic()
        while not self._usual.wait(0.2):
            progress(self._compiled / max(self.kernels, 1))
            if self._compiled != compiled:
                compiled, since = self._compiled, time.monotonic()
            if time.monotonic() - since > _STALL_S:
                log.warning(
                    "no kernel was compiled for %.0f s; the remaining ones are compiled at their first use", _STALL_S
                )
                self._kill()
                return False
        if self.seconds:
            log.info("%d kernels are in the cache after %.1f s", self._compiled, self.seconds)
        return self.seconds > 0

    def stop(self) -> None:
        self._processes.shutdown(wait=False, cancel_futures=True)

    def _kill(self) -> None:
        self.stop()
        for child in active_children():
            child.kill()

    def _run(self, listings: list[Future[tuple[list[KernelJob], list[KernelJob]]]]) -> None:
        compiling: dict[KernelJob, Future[str]] = {}
        others: dict[KernelJob, None] = {}
        try:
            for listing in as_completed(listings):
                usual, higher = listing.result()
                self._submit(usual, compiling)
                others |= dict.fromkeys(higher)
            self._wait_for(compiling.values())
            self.seconds = time.perf_counter() - self._started
            self._usual.set()
            before = len(compiling)
            self._submit(others, compiling)
            self._wait_for([*compiling.values()][before:])
            log.info("%d kernels for adapters of higher ranks are in the cache too", len(compiling) - before)
            if self._known is not None:
                self._known.remember(len(compiling))
        except UnsupportedModel:
            pass  # the loading of the model raises the same error
        except Exception:
            log.warning("compiling kernels ahead failed; they are compiled at their first use", exc_info=True)
        self._usual.set()
        self.stop()

    def _submit(self, jobs: Iterable[KernelJob], compiling: dict[KernelJob, Future[str]]) -> None:
        for job in jobs:
            if job not in compiling:
                compiling[job] = self._processes.submit(compile_kernel, job)
        if not self._usual.is_set():
            self.kernels = len(compiling)

    def _wait_for(self, compiling: Iterable[Future[str]]) -> None:
        for future in as_completed([*compiling]):
            future.result()
            self._compiled += 1


def _start_process(capability: tuple[int, int]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes; the parent ends them
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    torch.set_num_threads(1)
    compile_for(*capability)


@dataclass(frozen=True, slots=True)
class RecordedAddends:
    """A ``SharedAddends`` without memory, so that norms are recorded as several ranks launch them."""

    ranks: int

    def addend(self, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(rows, columns, dtype=dtype, device="meta")

    def contains(self, x: torch.Tensor) -> bool:
        return True

    def sum(self, addend: torch.Tensor) -> PartialSum | torch.Tensor:
        addresses = torch.empty(self.ranks, dtype=torch.int64, device="meta")
        meet(addresses, 0)
        if not in_two_parts(addend.nbytes, self.ranks):
            return PartialSum(addend, addresses)
        sum_rows(addend, addresses, 0)
        return addend


@torch.inference_mode()
def kernels_of(config: EngineConfig, part: int = 0, parts: int = 1) -> tuple[list[KernelJob], list[KernelJob]]:
    """Record the kernels of usual batches with their specialisations, prompts' first, and those of higher ranks.

    Each kernel is in at least one ``part`` of ``parts``.
    """
    model_config = ModelConfig.load(config.model)
    dtype, device = choose_dtype(config.dtype, torch.device("cuda")), torch.device("meta")
    several = config.tensor_parallel > 1 and config.fused_sum_mb > 0
    parallel = Parallel(0, config.tensor_parallel, shared=RecordedAddends(config.tensor_parallel) if several else None)
    weights = load_weights(config.model, model_config, device, dtype, parallel, quantises(config))
    max_context = min(config.max_context or model_config.max_position, model_config.max_position)
    without = replace(config, device="meta", backend="triton", mode="unmerged")
    model, _ = build_transformer(without, model_config, weights, max_context, parallel)
    pool = PagePool(model.shape.pool_geometry(config.page_tokens, fp8_kv(config)), _PAGES, dtype, device)
    largest = graph_sizes(config.max_running)[-1]
    inputs = GraphInputs(model, pool, largest, max_context, graph_rows(config, model_config, model.shape))
    last_tokens = torch.zeros(largest, dtype=torch.int64, device=device)

    def jobs(ranks: Sequence[int]) -> list[KernelJob]:
        with recorded_launches() as recorded:
            if part == 0:
                prefill_steps(model, pool, model.layer_kinds, ranks)
            shapes = usual_graphs(config.max_running, ranks, config.deterministic)
            if ranks == USUAL_RANKS:
                shapes += inputs.mixed
                shapes += drafted_graphs(largest, drafted_rows(config, model.shape), config.deterministic)
            for shape in shapes[part::parts]:
                inputs.run(model, shape, last_tokens, model.layer_kinds)
        return recorded

    usual = jobs(USUAL_RANKS)
    return usual, [job for job in jobs(inputs.rank_classes[len(USUAL_RANKS) :]) if job not in set(usual)]


def use_cache(data_dir: Path) -> None:
    """Store compiled kernels below an engine's data folder, unless ``TRITON_CACHE_DIR`` is set.

    Ranks that are forked before this store theirs elsewhere, and compile what another rank has compiled already.
    """
    os.environ[_CACHE_VARIABLE] = os.environ.get(_CACHE_VARIABLE) or str(_cache_below(data_dir))


def _cache_below(data_dir: Path) -> Path:
    return data_dir / "kernels" / f"triton-{triton.__version__}"


def _remove_old_caches(data_dir: Path) -> None:
    """Remove kernels of other versions of Triton.

    Triton's keys include the source, the compiler and the options, so that no stale kernel is used.
    """
    current = _cache_below(data_dir)
    if os.environ[_CACHE_VARIABLE] != str(current):
        return
    for other in current.parent.glob("triton-*"):
        if other != current:
            shutil.rmtree(other, ignore_errors=True)
    current.mkdir(parents=True, exist_ok=True)


def compute_capability(device: str) -> tuple[int, int] | None:
    """Return the compute capability of a device such as ``cuda:1``; None if there is no such GPU, or no answer.

    A separate process queries the driver: this one must not have used CUDA when it forks. It is asked once: a forked
    process has the answer of its parent.
    """
    index = torch.device(device).index or 0
    if index in _capabilities:
        return _capabilities[index]
    try:
        done = subprocess.run(
            [sys.executable, "-S", "-c", _ASK_DRIVER, str(index)], capture_output=True, text=True, timeout=_ASK_S
        )
        if done.returncode:
            return None
        major, minor = map(int, done.stdout.split())
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    _capabilities[index] = major, minor
    return major, minor


_capabilities: dict[int, tuple[int, int]] = {}  # by the index of the GPU


_ASK_DRIVER = f"""
import ctypes, sys
cuda, device, value = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_int()
failed = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), int(sys.argv[1]))
for attribute in ({_MAJOR}, {_MINOR}):
    failed = failed or cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
    print(value.value)
sys.exit(1 if failed else 0)
"""
