"""The cost of rendering a chat by an adapter's template in a process with limits, instead of in the engine's.

    python benchmarks/own_templates.py --out benchmarks/results/own_templates.jsonl

The demo model's template, with conversations of three lengths.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from rows import append, parser_of

from lora_engine.text import ChatTemplate
from lora_engine.text.chat_template import Message

DEMO = Path(__file__).parents[1] / "demo" / "model"
RUNS = 200
LENGTHS = {"a question": (1, 20), "a long chat": (40, 400), "a document": (1, 100_000)}  # messages, letters of each


def conversation(messages: int, letters: int) -> list[Message]:
    roles = ("user", "assistant")
    return [{"role": roles[number % 2], "content": "word " * (letters // 5)} for number in range(messages | 1)]


def milliseconds(template: ChatTemplate, messages: list[Message]) -> float:
    """Return the median milliseconds of rendering a chat template."""
    taken = []
    for _ in range(RUNS):
        began = time.perf_counter()
        template.render(messages)
        taken.append(1000 * (time.perf_counter() - began))
    return statistics.median(taken)


def main() -> None:
    parser = parser_of(__doc__, out=True)
    arguments = parser.parse_args()
    here = ChatTemplate.load(DEMO)
    began = time.perf_counter()
    there = ChatTemplate.of_adapter(here.source, here.special, None)
    row = {
        "benchmark": "own_templates",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "first_ms": round(1000 * (time.perf_counter() - began), 1),
    }
    for name, size in LENGTHS.items():
        messages = conversation(*size)
        assert there.render(messages) == here.render(messages)
        row[f"{name}, in the engine, ms"] = round(milliseconds(here, messages), 3)
        row[f"{name}, isolated, ms"] = round(milliseconds(there, messages), 3)
    append(arguments.out, [row])


if __name__ == "__main__":
    main()
