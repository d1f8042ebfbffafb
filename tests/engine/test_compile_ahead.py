"""What is compiled ahead, found and compiled here without a GPU: in a process that has Triton's compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import triton
from lorikeet_testing.forked import run_forked
from lorikeet_testing.tiny_models import save_model

from lora_engine.config import EngineConfig
from lora_engine.execution.compile_ahead import CompiledBefore, compute_capability
from lora_engine.server import process

HERE: dict[str, Any] = {"folder": Path.cwd(), "engine": True}
LIST_AND_COMPILE = """
import json, os, sys
from pathlib import Path
import triton
from lora_engine.config import EngineConfig
from lora_engine.execution.compile_ahead import CompileAhead, kernels_of
from lora_kernels.launches import compile_for, compile_kernel

config = EngineConfig(model=Path(sys.argv[1]), device="cuda", max_running=8)
ahead = CompileAhead(config, (9, 0))
ahead.wait()
ahead._thread.join()
files = sum(1 for path in Path(os.environ["TRITON_CACHE_DIR"]).rglob("*.cubin"))
compile_for(9, 0)
usual, others = kernels_of(config)
jobs = usual + others
hits = []
triton.knobs.compilation.listener = lambda **event: hits.append(event["cache_hit"])
names = [compile_kernel(job) for job in jobs]
found = {"kernels": ahead._compiled, "usual": ahead.kernels == len(usual)}
print(json.dumps({**found, "files": files, "names": names, "hits": hits}))
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    root = tmp_path_factory.mktemp("ahead")
    save_model("qwen3-qk-norm", root / "model")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(root / "kernels"), "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("TRITON_INTERPRET", None)
    done = run_forked(["-c", LIST_AND_COMPILE, str(root / "model")], env=environment, timeout=280, **HERE)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.long
def test_kernels_of_every_step_are_compiled_in_other_processes(compiled: dict[str, list[str]]) -> None:
    assert compiled["usual"]
    assert compiled["kernels"] == len(compiled["names"]) <= int(compiled["files"])  # type: ignore[call-overload]
    kernels = {"_norm", "_rope_kv", "_decode", "_merge", "_prefill", "_gated_activation", "_shrink_gemv",
               "_shrink_grouped", "_shrink_prefill", "_expand_gemv", "_expand_gemm", "_rejection"}  # fmt: skip
    assert kernels <= {name.removesuffix("_kernel") for name in compiled["names"]}


@pytest.mark.long
def test_what_they_compiled_is_found_in_the_cache(compiled: dict[str, list[str]]) -> None:
    assert compiled["hits"] and all(compiled["hits"])


LIST = """
import json, sys
from pathlib import Path
from lora_engine.config import EngineConfig
from lora_engine.execution.compile_ahead import kernels_of
from lora_kernels.launches import compile_for

compile_for(9, 0)
found = []
names = set()
for ranks, sharding, kind in ((1, "auto", "auto"), (2, "outer", "fp8"), (2, "full", "auto")):
    config = EngineConfig(
        model=Path(sys.argv[1]), device="cuda", max_running=2, tensor_parallel=ranks, lora_sharding=sharding,
        quantization=kind,
    )
    usual, _ = kernels_of(config)
    found.append([job.specialisation for job in usual if job.name == "_expand_gemv_kernel"])
    names |= {job.name for job in usual}
assert {"_meet_kernel", "_hopper_fp8_kernel"} <= names, names
print(json.dumps(found))
"""


def test_kernels_are_found_without_a_gpu_of_one_rank_and_of_several(tmp_path: Path) -> None:
    """Nothing that a step does may need the device, or memory that only a driver gives."""
    save_model("llama2-mha", tmp_path / "model")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("TRITON_INTERPRET", None)
    done = run_forked(["-c", LIST, str(tmp_path / "model")], env=environment, **HERE)
    assert done.returncode == 0, done.stderr
    alone, outer, full = json.loads(done.stdout)
    assert alone and outer and full
    assert not set(outer) & set(full), "what several ranks have shrunk is read in another way"


FAILURES = """
import os, sys, time
from pathlib import Path
from lora_engine.execution import compile_ahead
from lora_engine.config import EngineConfig

config = EngineConfig(model=Path(sys.argv[1]), device="cuda")
compile_ahead._STALL_S = 0.5
for failure in (lambda config: time.sleep(60), lambda config: os._exit(1), lambda config: 1 / 0):
    compile_ahead.kernels_of = failure
    ahead = compile_ahead.CompileAhead(config, (9, 0))
    ahead.wait()
    print("goes on")
    ahead.stop()
"""


def test_a_start_goes_on_without_what_cannot_be_compiled_ahead(tmp_path: Path) -> None:
    """The process that lists kernels hangs, ends or raises."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, "-c", FAILURES, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stdout) == (0, 3 * "goes on\n"), done.stderr
    assert done.stderr.count("at their first use") >= 3


def test_a_second_start_knows_that_all_are_compiled(tmp_path: Path) -> None:
    cache, config = tmp_path / "kernels", EngineConfig(model=tmp_path / "model", device="cuda")
    save_model("llama3-scaled-rope-tied", config.model)
    first = CompiledBefore(cache, config, (9, 0))
    assert not first.kernels
    for number in range(3):
        (cache / str(number)).mkdir(parents=True)
        (cache / str(number) / "kernel.cubin").touch()
    first.remember(3)
    again = CompiledBefore(cache, config, (9, 0))
    assert again.kernels == 3 and again.wait()
    for other in ({"max_running": 8}, {"kv_cache_dtype": "fp8"}):
        assert not CompiledBefore(cache, replace(config, **other), (9, 0)).kernels
    assert not CompiledBefore(cache, config, (10, 0)).kernels
    (cache / "1" / "kernel.cubin").unlink()
    assert not again.kernels


def test_without_a_driver_there_is_no_gpu_to_compile_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ask_driver = "lora_engine.execution.compile_ahead._ASK_DRIVER"
    monkeypatch.setattr("lora_engine.execution.compile_ahead._capabilities", {})
    monkeypatch.setattr(ask_driver, "import ctypes; ctypes.CDLL('no such library')")
    assert compute_capability("cuda:1") is None
    monkeypatch.setattr(ask_driver, "print(9); print(0)")
    assert compute_capability("cuda") == (9, 0)
    monkeypatch.setattr(ask_driver, "raise SystemExit(1)")
    assert compute_capability("cuda") == (9, 0), "it is asked once"


def test_ranks_have_one_cache_of_kernels_before_they_are_forked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Otherwise rank 1 would compile what was compiled for rank 0."""
    config = EngineConfig(model=tmp_path / "model", data_dir=tmp_path, device="cuda", tensor_parallel=2)
    monkeypatch.setattr("lora_engine.execution.compile_ahead._capabilities", {0: (9, 0)})
    for given, want in (("", str(tmp_path / "kernels" / f"triton-{triton.__version__}")), ("/elsewhere", "/elsewhere")):
        monkeypatch.setattr(os, "environ", {**os.environ, "TRITON_CACHE_DIR": given})
        process._import_all(config)
        assert os.environ["TRITON_CACHE_DIR"] == want


KEYS = """
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
import lora_kernels
from lora_kernels.launches import compute_cache_keys
from triton.runtime.jit import JITFunction

compute_cache_keys()
modules = [import_module(f"lora_kernels.{found.name}") for found in iter_modules(lora_kernels.__path__)]
functions = [value for module in modules for value in vars(module).values() if isinstance(value, JITFunction)]
keys = {f"{one.__module__}.{one.__name__}": one.cache_key for one in functions[:: int(sys.argv[1])]}
print(sorted(keys.items()))
"""


def test_what_was_compiled_first_does_not_change_a_kernel_s_place_in_the_cache() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("TRITON_INTERPRET", None)

    def keys(step: int) -> str:
        done = run_forked(["-c", KEYS, str(step)], env=environment, **HERE)
        assert done.returncode == 0, done.stderr
        return done.stdout

    forwards = keys(1)
    assert forwards.count("_kernel") > 20
    assert keys(-1) == forwards
