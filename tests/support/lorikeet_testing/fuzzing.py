"""The runner of every fuzzer: how many cases, and what each must keep to.

A fuzzer is a test in `tests/fuzz` that calls `fuzz` with a Hypothesis strategy and a function that tries one case:

    def test_config() -> None:
        fuzz("config", mutated_configs(), try_config)

The function returns what became of the case, for the tally: an HTTP status, "refused", an error code. It raises for
what must not be. A case must not raise, answer 5xx, take `SLOWEST_S` (of a processor, or, where other processes answer,
on the wall), or let a process grow by `GROWTH_BYTES`: this one, its children, and those whose ids are given.

In the ordinary suite a fuzzer runs for `PART_S`, in `make test-long` for `LONG_S` or its `long_cases`. `make fuzz` sets
`LORIKEET_FUZZ_CASES` (100,000), runs that many of each and adds a row to `benchmarks/results/fuzz.jsonl`. Hypothesis
draws in rounds with a seed each, so that what it remembers of a round does not count as growth; `LORIKEET_FUZZ_SEED`
chooses the first one. Drawing takes longer than most cases do, so each case that was drawn is tried in `VARIANTS` more
forms, with bytes changed at random.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "benchmarks" / "results" / "fuzz.jsonl"
LONG = bool(os.environ.get("LORIKEET_LONG"))  # of `make test-long`
PART_S, LONG_S = 0.75, 60.0
ROUND_OF_PART, ROUND = 25, 1000
SLOWEST_S = 5.0
GROWTH_BYTES = 1 << 30

VARIANTS = 4


def examples(count: int) -> int:
    """Return how many examples a property test draws: `count` in `make test-long`, a third of it in an ordinary run."""
    return count if LONG else max(1, count // 3)


T = TypeVar("T")


@dataclass
class Findings:
    """The outcomes of a fuzzer's cases."""

    name: str
    seed: int
    cases: int = 0
    slowest_s: float = 0.0
    growth_bytes: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)


def fuzz(
    name: str,
    cases: SearchStrategy[T],
    run: Callable[[T], object],
    *,
    vary: Callable[[T, random.Random], T] | None = None,
    processes: Sequence[int] = (),
    long_cases: int = 0,
) -> Findings:
    """Try cases until there were enough of them. Raises what `run` raises, with the smallest case that does it.

    vary: makes another form of a case; `changed` does it for bytes. Without it only what was drawn is tried.
    """
    num_cases = int(os.environ.get("LORIKEET_FUZZ_CASES", "0"))
    wanted = num_cases or (long_cases if LONG else 0)
    findings = Findings(name, seed=_first_seed())
    watched = _Watched([os.getpid(), *processes])
    until = time.monotonic() + (LONG_S if LONG else PART_S)
    seed = findings.seed
    while findings.cases < wanted if wanted else time.monotonic() < until:
        count = min(ROUND, wanted - findings.cases) if wanted else ROUND_OF_PART
        _round(findings, watched, seed, -(-count // (1 + VARIANTS)) if vary else count, cases, run, vary)
        seed += 1
    if num_cases:
        _write(findings)
    return findings


def _round(
    findings: Findings,
    watched: _Watched,
    seed: int,
    count: int,
    cases: SearchStrategy[T],
    run: Callable[[T], object],
    vary: Callable[[T, random.Random], T] | None,
) -> None:
    @hypothesis.seed(seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=False,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    def one(case: T) -> None:
        rnd = random.Random(repr(case))  # the same again, or nothing could be shrunk
        for variant in (case, *([vary(case, rnd) for _ in range(VARIANTS)] if vary else ())):
            try:
                _try(findings, watched, variant, run)
            except Exception as error:
                error.add_note(f"The case: {variant!r}"[:4000])
                raise

    before = findings.cases
    one()
    if findings.cases == before:
        raise AssertionError("the strategy has no cases")


def changed(data: bytes, rnd: random.Random) -> bytes:
    """Return the data with one to three changes: a byte flipped, a piece removed, repeated or moved, odd bytes."""
    for _ in range(rnd.randint(1, 3)):
        at, size = rnd.randint(0, len(data)), rnd.choice([1, 1, 2, 4, 8, 30])
        elsewhere = rnd.randint(0, len(data))
        put, cut = rnd.choice(
            [
                (rnd.randbytes(1), 1),
                (bytes([data[at] ^ 1 << rnd.randrange(8)]) if at < len(data) else b"", 1),
                (b"", size),
                (data[at : at + size], 0),
                (data[elsewhere : elsewhere + size], rnd.choice([0, size])),
                (rnd.choice(ODD), rnd.choice([0, size])),
            ]
        )
        data = data[:at] + put + data[at + cut :]
    return data


ODD = (
    *(b"\0", b"\xff", b"\xff\xff\xff\xff", b"\0" * 8, b"\xed\xa0\x80", b"\r\n"),
    *(b"-1", b"1e999", b"9" * 20, b'"', b"\\", b"{", b"[", b":", b","),
)


def _try(findings: Findings, watched: _Watched, case: T, run: Callable[[T], object]) -> None:
    began = watched.clock()
    outcome = run(case)
    took = watched.clock() - began
    findings.cases += 1
    findings.outcomes[str(outcome)] += 1
    findings.slowest_s = max(findings.slowest_s, took)
    findings.growth_bytes = max(findings.growth_bytes, watched.growth())
    assert took < SLOWEST_S, f"the case took {took:.1f} s"
    assert not (isinstance(outcome, int) and outcome >= 500), f"the case was answered with {outcome}"
    assert findings.growth_bytes < GROWTH_BYTES, f"a process grew by {findings.growth_bytes >> 20} MiB"


class _Watched:
    """The peaks of memory of some processes and of the children of this one. A process that ended counts as crashed."""

    def __init__(self, processes: Sequence[int]) -> None:
        for process in processes:
            _forget_the_peak(process)
        self._before = {process: _peak(process) for process in processes}
        self._children = self._childrens_peak()

    def clock(self) -> float:
        """Seconds: of this process and its children on a processor, which others' work does not lengthen. Where another
        process answers, on the wall.
        """
        return time.monotonic() if len(self._before) > 1 else time.process_time() + sum(os.times()[2:4])

    def growth(self) -> int:
        """Return the growth of peak memory since the start, in bytes, of the process that grew most."""
        each = [_peak(process) - before for process, before in self._before.items()]
        # The largest child that was waited for; one that is no larger than this process was itself is no news.
        children = self._childrens_peak()
        return max(*each, children - max(self._children, self._before[os.getpid()]), 0)

    @staticmethod
    def _childrens_peak() -> int:
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def _forget_the_peak(process: int) -> None:
    """Reset a process's peak memory, so that earlier tests do not hide the cases' use. A refusal is ignored."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{process}/clear_refs").write_text("5")


def _peak(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except FileNotFoundError:
        raise AssertionError(f"process {process} is gone") from None
    peak = next((line for line in lines if line.startswith("VmHWM:")), None)
    assert peak is not None, f"process {process} has ended"
    return int(peak.split()[1]) * 1024


def _first_seed() -> int:
    if chosen := os.environ.get("LORIKEET_FUZZ_SEED"):
        return int(chosen)
    # What a full run says of a commit must not depend on what it drew.
    return 0 if os.environ.get("LORIKEET_FULL_RUN") else random.randrange(10**6)


def _write(findings: Findings) -> None:
    row = {
        "workload": "fuzz", "model": None, "system": "lorikeet", "case": findings.name, "metric": "clean_cases",
        "value": findings.cases, "unit": "", "floor": None, "gpu": None, "gpus": 0, "commit": _commit(),
        "date": time.strftime("%Y-%m-%d"),
        "settings": {
            "seed": findings.seed, "slowest_s": round(findings.slowest_s, 3),
            "growth_mib": round(findings.growth_bytes / (1 << 20), 1),
            "outcomes": dict(findings.outcomes.most_common(40)),
        },
    }  # fmt: skip
    with RESULTS.open("a") as results:
        results.write(json.dumps(row) + "\n")


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
