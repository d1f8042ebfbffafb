"""Fit the simulator's step times to steps measured on a GPU, and show how well they fit.

    python benchmarks/scheduling/fit.py

Source: ``results/w1.jsonl`` (Llama-3.1-8B, one H200): of each case the median step without prefill and the sum of the
steps with prefill. W1 queues everything at the start, so that which tokens share a step does not depend on how long
steps take: the simulated engine replays it and counts what each step holds. Non-negative least squares of relative
errors."""

from __future__ import annotations

import json
from typing import Any

import common
import numpy as np

from lora_engine.scheduling.sequence import Chunk, Sequence
from lora_engine.simulation import SimulatedAdapter, SimulatedEngine

NAMES = ("step", "sequence", "prompt_token", "context_token", "rank", "distinct_rank")
SCALE = np.array([1e-3, 1e-5, 1e-5, 1e-8, 1e-7, 1e-6])
# W1's batches are all large, so two rates come from elsewhere: the matrix products of a step measured alone on the
# same GPU (136 us a layer and 287 us for the logits at 64 tokens, 187 and 379 at 256: 4.07 ms at none), and what a
# cached token costs to read (128 KiB at the measured 4.2 TB/s).
KNOWN = {0: 4.07e-3, 3: 131_072 / 4.2e12}
RANKS = (8, 16, 32, 64)
CASES = {
    "base lora on": (0, RANKS),
    "1 adapter": (1, (16,)),
    "8 mixed": (8, RANKS),
    "32 mixed": (32, RANKS),
    "64 mixed": (64, RANKS),
    "256 uniform": (256, RANKS),
    "1000 uniform": (1000, RANKS),
    "1000 uniform r8": (1000, (8,)),
    "4000 uniform r8": (4000, (8,)),
}


def features(chunks: dict[Sequence, Chunk], computed: dict[Sequence, int]) -> list[float]:
    decoding = prompt = context = rank = 0
    distinct: dict[str, int] = {}
    for sequence, chunk in chunks.items():
        if computed[sequence] < sequence.num_prompt:
            prompt += chunk.tokens
        else:
            decoding += 1
            context += computed[sequence]
        if sequence.slot is not None:
            rank += sequence.slot.rank * chunk.tokens
            distinct[sequence.slot.digest] = sequence.slot.rank
    return [1.0, decoding, prompt, context, rank, sum(distinct.values())]


def replay(count: int, ranks: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of features: of the median decode step, and summed over the steps with prefill."""
    loras = [SimulatedAdapter(f"a{n}", ranks[n % len(ranks)], 2) for n in range(count)]
    machine = common.machine(common.H200, 2_000_000, loras)
    engine = SimulatedEngine(
        machine, order="fcfs", admission="all", step_tokens=4096, max_running=256, prefix_cache=False
    )
    decode, mixed = [], np.zeros(6)
    schedule = engine.core.scheduler.schedule

    def watched() -> Any:
        plan = schedule()
        row = features(plan.chunks, {s: s.num_computed for s in plan.chunks})
        if row[2]:
            mixed[:] += row
        else:
            decode.append(row)
        return plan

    engine.core.scheduler.schedule = watched  # type: ignore[method-assign]
    for number in range(1000):
        engine.submit(common.request(str(number), 256, 128, adapter=f"a{number % count}" if count else ""))
    engine.run([])
    decode.sort(key=lambda row: row[1])
    return np.array(decode[len(decode) // 2]), mixed


def measured() -> dict[str, dict[str, Any]]:
    """Return the newest row of each case."""
    lines = (common.ROOT / "benchmarks" / "results" / "w1.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    wanted = ("lorikeet", "llama-3.1-8b", "requests_per_s")
    figures = [r for r in rows if (r["system"], r["model"], r["metric"]) == wanted]
    return {r["case"]: r["settings"] for r in figures if r["case"] in CASES and "mixed_seconds" in r["settings"]}


def solve(matrix: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Solve non-negative least squares by dropping the most negative rate until none is left."""
    kept = list(range(matrix.shape[1]))
    while True:
        coefficients, *_ = np.linalg.lstsq(matrix[:, kept], target, rcond=None)
        if coefficients.min() >= 0:
            rates = np.zeros(matrix.shape[1])
            rates[kept] = coefficients
            return rates
        kept.pop(int(coefficients.argmin()))


def main() -> None:
    rows, target, labels = [], [], []
    for case, settings in measured().items():
        decode, mixed = replay(*CASES[case])
        rows += [decode, mixed]
        target += [settings["decode_step_ms"] / 1e3, settings["mixed_seconds"]]
        labels += [f"{case}: decode step", f"{case}: steps with prefill"]
    matrix, times = np.array(rows) * SCALE, np.array(target)
    free = [n for n in range(6) if n not in KNOWN]
    known = matrix[:, list(KNOWN)] @ (np.array(list(KNOWN.values())) / SCALE[list(KNOWN)])
    rates = np.zeros(6)
    rates[free] = solve(matrix[:, free] / times[:, None], (times - known) / times) * SCALE[free]
    rates[list(KNOWN)] = list(KNOWN.values())
    predicted = (matrix / SCALE) @ rates
    errors = np.abs(predicted / times - 1)
    for label, was, is_now in zip(labels, times, predicted, strict=True):
        print(f"{label:40} measured {was:9.4f} s, model {is_now:9.4f} s, {100 * (is_now / was - 1):+5.1f} %")
    print({name: float(f"{rate:.3g}") for name, rate in zip(NAMES, rates, strict=True)})
    settings = {name: float(f"{rate:.4g}") for name, rate in zip(NAMES, rates, strict=True)}
    fit = {
        "fit": [
            [a, round(b, 5), round(c, 5)] for a, b, c in zip(labels, times.tolist(), predicted.tolist(), strict=True)
        ]
    }
    common.write(
        [common.row("step_times", "W1 on H200", "worst_relative_error", float(errors.max()), "", **settings, **fit)]
    )


if __name__ == "__main__":
    main()
