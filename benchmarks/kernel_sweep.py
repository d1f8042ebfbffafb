"""Tile sizes of the few-tokens LoRA kernels, compared on the batches that matter. Prints; keeps nothing."""

from __future__ import annotations

import itertools

from kernel_table import GROUPS, Case, bench

import lora_kernels.lora as lora

CASES = [
    Case(64, 64, (8,)),
    Case(64, 64, (8, 16, 32, 64)),
    Case(64, 64, (64,)),
    Case(256, 256, (8, 16, 32, 64)),
    Case(64, 8, (16,)),
]


def main() -> None:
    for rows, columns in itertools.product((8, 16, 32), (256, 512, 1024)):
        lora.FEW_RANK_BLOCK, lora.FEW_COLUMNS = rows, columns
        for name in ("qkv", "o", "down"):
            line = []
            for case in CASES:
                result = bench(case, GROUPS[name], lora.FEW_TOKENS)
                line.append(
                    f"{result['shrink_us']:6.1f} + {result['expand_us']:6.1f} (floor {result['floor_us']:5.1f})"
                )
            print(f"rank block {rows} columns {columns} {name:5}: " + " | ".join(line), flush=True)


if __name__ == "__main__":
    main()
