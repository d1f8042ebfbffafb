"""What is compiled ahead, found and compiled here without a GPU: in a process that has Triton's compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from lorikeet_testing.tiny_models import save_model

LIST_AND_COMPILE = """
import json, os, sys
from pathlib import Path
import triton
from lora_engine.config import EngineConfig
from lora_engine.compile_ahead import CompileAhead, kernels_of
from lora_kernels.launches import compile_for, compile_kernel

config = EngineConfig(model=Path(sys.argv[1]), device="cuda", max_running=8)
ahead = CompileAhead(config, (9, 0))
ahead.wait()
files = sum(1 for path in Path(os.environ["TRITON_CACHE_DIR"]).rglob("*.cubin"))
compile_for(9, 0)
jobs = kernels_of(config)
hits = []
triton.knobs.compilation.listener = lambda **event: hits.append(event["cache_hit"])
names = [compile_kernel(job) for job in jobs]
print(json.dumps({"kernels": ahead.kernels, "files": files, "names": names, "hits": hits}))
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    root = tmp_path_factory.mktemp("ahead")
    save_model("qwen3-qk-norm", root / "model")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(root / "kernels"), "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, "-c", LIST_AND_COMPILE, str(root / "model")],
        env=environment, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.long
def test_kernels_of_every_step_are_compiled_in_other_processes(compiled: dict[str, list[str]]) -> None:
    assert compiled["kernels"] == len(compiled["names"]) <= int(compiled["files"])  # type: ignore[call-overload]
    kernels = {"_norm", "_rope_kv", "_decode", "_merge", "_prefill", "_gated_activation", "_shrink_gemv",
               "_shrink_grouped", "_shrink_prefill", "_expand_gemv", "_expand_gemm", "_rejection"}  # fmt: skip
    assert kernels <= {name.removesuffix("_kernel") for name in compiled["names"]}


@pytest.mark.long
def test_what_they_compiled_is_found_in_the_cache(compiled: dict[str, list[str]]) -> None:
    assert compiled["hits"] and all(compiled["hits"])
