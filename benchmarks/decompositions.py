"""How long it takes to compute again what PiSSA and OLoRA took out of one matrix of the base.

    python benchmarks/decompositions.py --out benchmarks/results/decompositions.jsonl

PiSSA needs the singular value decomposition of the whole matrix, OLoRA the QR decomposition of its first columns.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch

SIZES = (512, 1024, 2048)
RANK = 16


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return round(time.perf_counter() - began, 4)


def first_directions(weight: torch.Tensor) -> torch.Tensor:
    """``B0 A0`` of OLoRA: the projection onto the span of the first columns."""
    basis, _ = torch.linalg.qr(weight[:, :RANK])
    return basis @ (basis.T @ weight)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    for size in SIZES:
        weight = torch.randn(size, size)
        full, triangle = torch.linalg.qr(weight)
        difference = float((first_directions(weight) - full[:, :RANK] @ triangle[:RANK]).abs().max())
        row = {
            "benchmark": "decompositions",
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
            "size": size,
            "rank": RANK,
            "pissa_s": seconds(lambda: torch.linalg.svd(weight, full_matrices=False)),  # noqa: B023
            "olora_s": seconds(lambda: first_directions(weight)),  # noqa: B023
            "olora_whole_s": seconds(lambda: torch.linalg.qr(weight)),  # noqa: B023
            "olora_difference": difference,
        }
        print(json.dumps(row))
        if arguments.out:
            with arguments.out.open("a") as out:
                out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
