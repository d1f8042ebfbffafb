"""When copying a request's keys and values to another host would be quicker than computing them there again.

    python benchmarks/kv_copy.py [--dry]

By arithmetic: their bytes for each token over the network, beside the prefill that `step_times.py` measured on an H200
(the newest row of each case in `results/w1.jsonl`). A 70B over four GPUs is not measured: its figure is the matrix
rate's floor, so that copies look worse than they are."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from cpu_rows import append, row
from rows import MATRIX_RATE

RESULTS = Path(__file__).resolve().parent / "results"
NETWORKS_GBIT = (10, 25, 100, 400)
REACHED = 0.8
"""Of a network's rate, what one stream of copies is taken to reach."""


@dataclass(frozen=True)
class Case:
    name: str
    layers: int
    token_s: float
    """Of prefill."""
    kv_heads: int = 8
    head_dim: int = 128
    element_bytes: int = 2

    @property
    def token_bytes(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head_dim * self.element_bytes

    @property
    def break_even_gbit(self) -> float:
        """The network's rate at which both take as long."""
        return self.token_bytes * 8 / self.token_s / REACHED / 1e9

    def copied_ms(self, tokens: int, gbit: float) -> float:
        return tokens * self.token_bytes * 8 / (gbit * 1e9 * REACHED) * 1e3


def measured_s(system: str, prompts: int) -> float:
    """Seconds of prefill for a token."""
    found = 0.0
    for line in (RESULTS / "w1.jsonl").read_text().splitlines():
        each = json.loads(line)
        settings = each["settings"]
        if (each["model"], each["system"], each["case"], each["metric"], settings.get("prompts")) == (
            "llama-3.1-8b",
            system,
            "base",
            "prefill_ms",
            prompts,
        ):
            found = each["value"] / 1e3 / (prompts * settings["prompt"])
    return found


def cases() -> list[Case]:
    return [
        Case("8B, prompts of 256", 32, measured_s("lorikeet", 64)),
        Case("8B, a prompt of 16,384", 32, measured_s("lorikeet", 1)),
        Case("8B in FP8, prompts of 256", 32, measured_s("lorikeet, fp8", 64)),
        Case("70B over four GPUs, at its floor", 80, 2 * 70.6e9 / (4 * MATRIX_RATE)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry", action="store_true", help="print, and keep nothing")
    rows = [
        row(
            "kv_copy",
            case.name,
            "break_even_gbit_s",
            case.break_even_gbit,
            "Gbit/s",
            {
                "kv_bytes_a_token": case.token_bytes,
                "recompute_ms_1000": round(case.token_s * 1e6, 1),
                "copy_ms_1000": {str(rate): round(case.copied_ms(1000, rate), 1) for rate in NETWORKS_GBIT},
            },
            digits=0,
        )
        for case in cases()
    ]
    append(RESULTS / "kv_copy.jsonl", rows, dry=parser.parse_args().dry)


if __name__ == "__main__":
    main()
