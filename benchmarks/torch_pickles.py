"""Reading adapter_model.bin: our interpreter and torch.load(weights_only=True), each in a process of its own.

    python -m benchmarks.torch_pickles --to benchmarks/results/torch_pickles.jsonl

Writes one line for each reader and size: seconds from the start of the process to every tensor read, and the process's
largest resident and virtual memory.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OURS = """
from pathlib import Path
from lora_engine.peft_format.geometry import AdapterLimits
from lora_engine.peft_format.torch_pickle import TorchFile
with TorchFile(Path(sys.argv[1]), AdapterLimits()) as file:
    for name in file.entries:
        file.tensor(name)
"""
TORCH = """
import torch
torch.load(sys.argv[1], weights_only=True, map_location="cpu")
"""
TOLD = """
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
print(status["VmHWM"].split()[0], status["VmPeak"].split()[0])
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--to", type=Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, args.to.open("w") as results:
        for layers, rank in ((16, 8), (32, 16), (32, 64)):
            path = Path(folder) / "adapter_model.bin"
            write(path, layers, rank)
            for reader, program in (("ours", OURS), ("torch.load", TORCH)):
                line = {"reader": reader, "file_mb": round(path.stat().st_size / 1e6, 1), "tensors": layers * 14}
                results.write(
                    json.dumps({**line, **measure(program, path), "python": platform.python_version()}) + "\n"
                )


def write(path: Path, layers: int, rank: int) -> None:
    """All seven targets of a model with a hidden size of 4096, in bfloat16."""
    import torch

    state = {}
    for layer in range(layers):
        for target in "qkvogud":
            state[f"base_model.model.model.layers.{layer}.{target}.lora_A.weight"] = torch.randn(rank, 4096).bfloat16()
            state[f"base_model.model.model.layers.{layer}.{target}.lora_B.weight"] = torch.randn(4096, rank).bfloat16()
    torch.save(state, path)


def measure(program: str, path: Path) -> dict[str, float]:
    best, printed = float("inf"), ""
    for _ in range(3):
        started = time.perf_counter()
        command = [sys.executable, "-c", f"import sys{program}{TOLD}", str(path)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        best = min(best, time.perf_counter() - started)
    resident, virtual = (int(part) // 1024 for part in printed.split()[-2:])
    return {"seconds": round(best, 2), "resident_mb": resident, "virtual_mb": virtual}


if __name__ == "__main__":
    main()
