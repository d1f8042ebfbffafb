"""The context length at which copying a request's keys and values to another host beats recomputing them there.

    python benchmarks/kv_copy.py [--dry]

By arithmetic: their bytes for each token over the network, beside the prefill that `step_times.py` measured on an H200
(the newest row of each case in `results/w1.jsonl`). A 70B over four GPUs is not measured: its figure is the matrix
rate's floor, so that copies look worse than they are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rows import H200_MATRIX_RATE, append, parser_of, row

RESULTS = Path(__file__).resolve().parent / "results"
NETWORKS_GBIT = (10, 25, 100, 400)
# Share of a network's rate that one stream of copies is assumed to reach.
NETWORK_SHARE = 0.8


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
        """The network's rate, in Gbit/s, at which copying and computing take equally long."""
        return self.token_bytes * 8 / self.token_s / NETWORK_SHARE / 1e9

    def copied_ms(self, tokens: int, gbit: float) -> float:
        return tokens * self.token_bytes * 8 / (gbit * 1e9 * NETWORK_SHARE) * 1e3


def measured_s(system: str, prompts: int) -> float:
    """Return the measured seconds of prefill per token."""
    seconds_per_token = 0.0
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
            seconds_per_token = each["value"] / 1e3 / (prompts * settings["prompt"])
    return seconds_per_token


def cases() -> list[Case]:
    return [
        Case("8B, prompts of 256", 32, measured_s("lorikeet", 64)),
        Case("8B, a prompt of 16,384", 32, measured_s("lorikeet", 1)),
        Case("8B in FP8, prompts of 256", 32, measured_s("lorikeet, fp8", 64)),
        Case("70B over four GPUs, at its floor", 80, 2 * 70.6e9 / (4 * H200_MATRIX_RATE)),
    ]


def main() -> None:
    parser = parser_of(__doc__, dry=True)
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
