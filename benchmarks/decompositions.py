"""The time to recompute what PiSSA and OLoRA took out of one matrix of the base.

    python benchmarks/decompositions.py --out benchmarks/results/decompositions.jsonl

PiSSA needs the singular value decomposition of the whole matrix, OLoRA the QR decomposition of its first columns.
Last, what a host does for the seven matrices of one layer of Llama-3.1-8B when it packs an OLoRA adapter
(`lora_engine.adapters.taken_out`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from rows import append, parser_of

from lora_engine.adapters.taken_out import taken_out

SIZES = (512, 1024, 2048)
LAYER_8B = {
    "q_proj": (4096, 4096), "k_proj": (1024, 4096), "v_proj": (1024, 4096), "o_proj": (4096, 4096),
    "gate_proj": (14336, 4096), "up_proj": (14336, 4096), "down_proj": (4096, 14336),
}  # fmt: skip
RANK = 16


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return round(time.perf_counter() - began, 4)


def first_directions(weight: torch.Tensor) -> torch.Tensor:
    """Return OLoRA's ``B0 A0``: the projection onto the span of the first columns."""
    basis, _ = torch.linalg.qr(weight[:, :RANK])
    return basis @ (basis.T @ weight)


class Layer:
    """The bfloat16 matrices of one layer, read in rows as an engine does."""

    def __init__(self, device: str) -> None:
        self._matrices = {t: torch.randn(shape, device=device).bfloat16() for t, shape in LAYER_8B.items()}

    def rows(self, layer: int, target: str) -> Iterator[torch.Tensor]:
        for rows in self._matrices[target].split(2048):
            yield rows.float()

    def is_quantised(self, layer: int, target: str) -> bool:
        return False

    def aside(self) -> AbstractContextManager[object]:
        return nullcontext()


def write(row: dict[str, object], out: Path | None) -> None:
    load = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    append(out, [{"benchmark": "decompositions", **load, **row}])


def main() -> None:
    parser = parser_of(__doc__, out=True)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    for size in SIZES:
        weight = torch.randn(size, size)
        full, triangle = torch.linalg.qr(weight)
        difference = float((first_directions(weight) - full[:, :RANK] @ triangle[:RANK]).abs().max())
        row = {
            "size": size,
            "rank": RANK,
            "pissa_s": seconds(lambda: torch.linalg.svd(weight, full_matrices=False)),  # noqa: B023
            "olora_s": seconds(lambda: first_directions(weight)),  # noqa: B023
            "olora_whole_s": seconds(lambda: torch.linalg.qr(weight)),  # noqa: B023
            "olora_difference": difference,
        }
        write(row, arguments.out)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layer, name = Layer(device), torch.cuda.get_device_name() if device == "cuda" else "cpu"
    for rank in (16, 64):
        taken_out(layer, 0, "k_proj", rank)  # what the first call loads
        taken_s = {target: seconds(lambda: taken_out(layer, 0, target, rank)) for target in LAYER_8B}  # noqa: B023
        sums = {"seconds": taken_s, "sum_s": sum(taken_s.values())}
        write({"layer": "Llama-3.1-8B", "device": name, "rank": rank, **sums}, arguments.out)


if __name__ == "__main__":
    main()
