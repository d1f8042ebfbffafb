"""The table of models and cards in docs/how-to/own-model.md, computed by the engine's own arithmetic.

    python -m scripts.card_table            # writes the table
    python -m scripts.card_table --check    # fails if it is not current

Each cell has the sequences that fit at once beside the adapters.
"""

from __future__ import annotations

import argparse
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from scripts.launch.paths import ROOT

sys.path[:0] = [str(ROOT / part) for part in ("inference_engine", "kernels", "benchmarks")]

from model_shapes import MODELS  # noqa: E402

from lora_engine.config import EngineConfig  # noqa: E402
from lora_engine.model.config import ModelConfig  # noqa: E402
from lora_engine.model.planning import Plan, plan  # noqa: E402
from lora_engine.server.plan import attention_targets  # noqa: E402

PAGE = ROOT / "docs" / "how-to" / "own-model.md"
BEGIN, END = "<!-- scripts.card_table begins -->\n", "<!-- scripts.card_table ends -->\n"
# Memory in GiB that the driver reports of cards: L4 or RTX 4090, L40S, H100, H200.
CARDS = {"24 GB": 22.5, "48 GB": 44.5, "80 GB": 79.1, "141 GB": 139.8}
MAX_CONTEXT, TOKENS, ADAPTERS, RANK = 8192, 2048, 64, 16


class Row(NamedTuple):
    model: str
    quantization: str = "auto"
    cards: int = 1


ROWS = [
    Row("Llama-3.1-8B"), Row("Llama-3.1-8B", "fp8"), Row("Qwen3.5-9B"), Row("Qwen3.5-9B", "fp8"),
    Row("Gemma-3-27B"), Row("Gemma-3-27B", "fp8"), Row("Qwen3.5-27B"), Row("Qwen3.5-27B", "fp8"),
    Row("Qwen3-30B-A3B"), Row("Qwen3-30B-A3B", "fp8"), Row("Qwen3.5-35B-A3B"), Row("Qwen3.5-35B-A3B", "fp8"),
    Row("GPT-OSS-20B"), Row("GPT-OSS-120B"), Row("Mixtral-8x7B"), Row("Mixtral-8x7B", "fp8"),
    Row("GLM-4.5-Air", "fp8"), Row("GLM-4.5-Air", "fp8", 2), Row("GLM-4.5-Air", "auto", 2),
    Row("Yi-34B"), Row("Yi-34B", "fp8"),
    Row("Llama-3.1-70B", "fp8"), Row("Llama-3.1-70B", "fp8", 2), Row("Llama-3.1-70B", "auto", 2),
    Row("Qwen2.5-72B", "fp8"), Row("Qwen2.5-72B", "fp8", 2), Row("Qwen2.5-72B", "auto", 2),
]  # fmt: skip


@cache
def planned(row: Row) -> Plan:
    """Return the plan of a row for a card without memory; its parts do not depend on the card, but for the reserve."""
    config = EngineConfig(
        Path(), device="cuda", quantization=row.quantization, tensor_parallel=row.cards, max_context=MAX_CONTEXT
    )
    return plan(config, ModelConfig.from_dict(MODELS[row.model]), 0)


@cache
def adapter_pages(row: Row) -> int:
    made = planned(row)
    return made.adapter_pages(RANK, attention_targets(made))


def cell(row: Row, gib: float) -> str:
    """Return the number of sequences that fit, or why none does."""
    made = planned(row)
    memory = made.memory.on(int(gib * 2**30), made.config)
    if memory.pool <= 0:
        return "–"
    if memory.longest < made.max_context:
        return f"– (one of {_rounded(memory.longest)})" if memory.longest >= TOKENS else "–"
    return _rounded(memory.sequences(TOKENS, ADAPTERS * adapter_pages(row)))


def _rounded(count: int) -> str:
    """Return two digits of a number, rounded down: a graph more or less would otherwise change the page."""
    digit = 10 ** max(0, len(str(count)) - 2)
    return f"{count // digit * digit:,}"


def table() -> str:
    heads = ["model", "weights", "a token", f"an adapter of rank {RANK}", *CARDS]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for row in ROWS:
        made = planned(row)
        weights = f"{made.memory.parts['weights'] / 2**30:.1f} GiB" + (", FP8" if row.quantization == "fp8" else "")
        adapter = adapter_pages(row) * made.memory.page_bytes / 2**20
        several = f", {row.cards} cards" if row.cards > 1 else ""
        cells = [
            row.model + several,
            weights,
            f"{made.memory.token_bytes / 1024:.0f} KiB",
            f"{adapter:.0f} MiB",
            *(cell(row, gib) for gib in CARDS.values()),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """Return the page with a current table."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        return int(page() != PAGE.read_text())
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
