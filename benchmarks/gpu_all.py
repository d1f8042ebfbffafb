"""Everything that needs a GPU, in one run: correctness, then each figure of docs/performance.md.

    python benchmarks/gpu_all.py --out results [--gpus 0 1] [--only tests w1 ...] [--commit abc1234]

One job is a list of commands that run one after the other on one GPU, so that the figures of a table come from the
same one. A GPU that is free takes the next job; those that mind what others do to the host (`ALONE`) run after the
rest, one at a time. Every command writes a log beside its results, and none stops the others. Kernels are compiled
into a cache of the run, by the job `tests` if it runs; a figure of a command that had to compile counts as a first run.
Ends with 1 if a command failed.
"""

from __future__ import annotations

import argparse
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEST = ("-m", "pytest", "-p", "no:cacheprovider", "-W", "ignore", "-q", "-rf", "--tb=short")
GPU_TEST = (*TEST, "-s", "-m", "gpu")

Command = tuple[str, ...]  # arguments of Python; "OUT/" stands for the folder of results
JOBS: dict[str, tuple[Command, ...]] = {
    "tests": (
        (*TEST, "tests/kernels"),
        (*GPU_TEST, "tests/engine", "--ignore=tests/engine/test_soak.py", "--ignore=tests/engine/test_warm_up.py"),
        # It counts kernels that are compiled after the start, so nothing may have run in its process before.
        (*GPU_TEST, "tests/engine/test_warm_up.py"),
    ),
    "soak": ((*GPU_TEST, "tests/engine/test_soak.py"),),
    "w1": (
        ("benchmarks/offline_throughput.py", "--out", "OUT/w1.jsonl"),
        ("benchmarks/offline_throughput.py", "--lora-off", "--cases", "base lora off", "--out", "OUT/w1.jsonl"),
        ("benchmarks/step_times.py", "--out", "OUT/w1.jsonl"),
        ("benchmarks/merge_cost.py", "--out", "OUT/w1.jsonl"),
    ),
    "w1-7b": (
        ("benchmarks/offline_throughput.py", "--model", "llama-2-7b", "--out", "OUT/w1.jsonl"),
        ("benchmarks/step_times.py", "--model", "llama-2-7b", "--out", "OUT/w1.jsonl"),
    ),
    "start": (("benchmarks/start_time.py", "--out", "OUT/start.jsonl"),),
    "fp8": (
        ("benchmarks/fp8_table.py", "--out", "OUT/fp8.jsonl"),
        ("benchmarks/step_times.py", "--quantization", "fp8", "--out", "OUT/w1.jsonl"),
        ("benchmarks/step_times.py", "--quantization", "fp8", "--kv-cache-dtype", "fp8", "--out", "OUT/w1.jsonl"),
        ("benchmarks/offline_throughput.py", "--quantization", "fp8", "--out", "OUT/w1.jsonl"),
    ),
    "deterministic": (
        ("benchmarks/deterministic.py", "--out", "OUT/deterministic.jsonl"),
        ("benchmarks/deterministic.py", "--products"),
    ),
    "kernels": (
        ("benchmarks/kernel_table.py", "--out", "OUT/kernels.jsonl"),
        ("benchmarks/attention_table.py", "--out", "OUT/attention.jsonl"),
        ("benchmarks/elementwise_table.py", "--out", "OUT/elementwise.jsonl"),
    ),
    "ablations": (("benchmarks/ablations.py", "--out", "OUT/ablations.jsonl"),),
    "activated": (("benchmarks/activated_lora.py", "--out", "OUT/activated_lora.jsonl"),),
    "structured": (("benchmarks/structured_outputs.py", "--out", "OUT/structured_outputs.jsonl"),),
    "peft": (("benchmarks/peft_baseline.py", "--out", "OUT/w1.jsonl"),),
    "w3": (
        ("benchmarks/working_set.py", "--out", "OUT/w3.jsonl"),
        ("benchmarks/working_set.py", "--no-prefetch", "--out", "OUT/w3.jsonl"),
    ),
}
ALONE = ("start", "peft", "w3")


@dataclass(frozen=True)
class Done:
    job: str
    command: Command
    gpu: str
    seconds: float
    code: int

    def __str__(self) -> str:
        state = "✓" if self.code == 0 else f"✗ ended with {self.code}"
        return f"{state} {self.job} on GPU {self.gpu}, {self.seconds:.0f} s: {' '.join(self.command)}"


class Run:
    """A run of jobs on GPUs, with each command's result in the order in which they ended."""

    def __init__(self, out: Path, commit: str) -> None:
        self._out = out
        self._logs = out / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [
                    *(str(ROOT / name) for name in ("platform", "inference_engine", "kernels", "tests/support")),
                    *filter(None, [os.environ.get("PYTHONPATH")]),
                ]
            ),
            "PYTHONUNBUFFERED": "1",
            "TRITON_CACHE_DIR": os.environ.get("TRITON_CACHE_DIR", str(out.resolve() / "triton")),
            "LORIKEET_SOAK_S": os.environ.get("LORIKEET_SOAK_S", "1200"),  # half with graphs, half without
            **({"LORIKEET_COMMIT": commit} if commit else {}),
        }
        self.done: list[Done] = []

    def jobs(self, names: Sequence[str], gpus: Sequence[str]) -> None:
        waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        for name in names:
            waiting.put(name)

        def serve(gpu: str) -> None:
            while True:
                try:
                    name = waiting.get_nowait()
                except queue.Empty:
                    return
                for number, command in enumerate(JOBS[name]):
                    self._command(name, number, command, gpu)

        threads = [threading.Thread(target=serve, args=(gpu,)) for gpu in gpus]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _command(self, job: str, number: int, command: Command, gpu: str) -> None:
        arguments = [word.replace("OUT/", f"{self._out}/") for word in command]
        started = time.monotonic()
        with (self._logs / f"{job}-{number}.log").open("w") as log:
            code = subprocess.call(
                [sys.executable, *arguments],
                cwd=ROOT, env={**self._environment, "CUDA_VISIBLE_DEVICES": gpu},
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self.done.append(Done(job, command, gpu, time.monotonic() - started, code))
        print(self.done[-1], flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of results; rows are appended to what is there")
    parser.add_argument("--gpus", nargs="+", default=["0"], help="CUDA's numbers of the GPUs to use")
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--commit", default="", help="commit named in the rows, where there is no git")
    chosen = parser.parse_args()
    run = Run(chosen.out.absolute(), chosen.commit)
    run.jobs([name for name in chosen.only if name not in ALONE], chosen.gpus)
    run.jobs([name for name in chosen.only if name in ALONE], chosen.gpus[:1])
    return 1 if any(done.code for done in run.done) else 0


if __name__ == "__main__":
    raise SystemExit(main())
