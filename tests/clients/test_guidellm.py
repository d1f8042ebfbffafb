"""guidellm measures the server as it does others: a profile, made-up prompts, the model's own tokenizer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lorikeet_testing.launched import ROOT, Access

pytestmark = pytest.mark.long

PACKAGE = "guidellm==0.8.1"
REQUESTS = 5


@pytest.mark.parametrize("profile", ["synchronous", "concurrent,streams=4", "sweep,sweep_size=3"])
def test_a_benchmark(access: Access, tmp_path: Path, venv_of_guidellm: Path, profile: str) -> None:
    """A sweep is one after the other, all at once, and a rate between."""
    report = tmp_path / "report.json"
    done = subprocess.run(
        [
            venv_of_guidellm / "bin" / "guidellm", "run", "--disable-progress",
            "--backend", f"kind=openai_http,target={access.url},model=lorikeet-demo,api_key={access.key}",
            "--profile", f"kind={profile}", "--constraint", f"kind=max_requests,count={REQUESTS}",
            "--tokenizer", f"kind=huggingface_auto,model={ROOT / 'demo' / 'model'}",
            "--data", "kind=synthetic_text,prompt_tokens=32,output_tokens=8", "--output", f"kind=json,path={report}",
        ],
        env={**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    benchmarks = json.loads(report.read_text())["benchmarks"]
    assert len(benchmarks) == 1 if "sweep" not in profile else len(benchmarks) == 3
    for benchmark in benchmarks:
        totals = benchmark["metrics"]["request_totals"]
        assert (totals["successful"], totals["errored"]) == (REQUESTS, 0), totals


@pytest.fixture(scope="module")
def venv_of_guidellm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if known := os.environ.get("LORIKEET_TEST_GUIDELLM"):
        return Path(known)
    folder = tmp_path_factory.mktemp("guidellm") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "-q", PACKAGE], check=True)
    return folder
