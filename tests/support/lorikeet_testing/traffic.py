"""Random traffic for the simulated engine: machines so small that a few hundred steps reach every corner."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from typing import Any

from lora_engine.request import GenerationRequest, SamplingParams, Slo
from lora_engine.simulation import Machine, SimulatedAdapter, SimulatedEngine, StepTimes

TIMES = StepTimes(step=0.01, sequence=0.0002, prompt_token=0.0001)


def machine(pages: int = 200, adapters: int = 0, rnd: random.Random | None = None, **speeds: float) -> Machine:
    rnd = rnd or random.Random(0)
    sizes = [SimulatedAdapter(f"a{n}", rnd.choice([8, 16, 64]), rnd.randint(1, 4)) for n in range(adapters)]
    return Machine(TIMES, pages, sizes, **speeds)


def request(
    number: int | str, tenant: str = "t", prompt: int = 20, output: int = 10, adapter: str = "", **slo: Any
) -> GenerationRequest:
    return GenerationRequest(
        str(number), [1 + hash_of(number)] * prompt, SamplingParams(max_tokens=output, ignore_eos=True), adapter,
        tenant=tenant, slo=Slo(**slo),
    )  # fmt: skip


def hash_of(number: int | str) -> int:
    """Return a token that differs between requests, and is the same in every process."""
    return zlib.crc32(str(number).encode()) % 100_000


@dataclass
class Trace:
    """Tenants that come and go at random, each with its weight, lengths and adapters."""

    engine: SimulatedEngine
    rnd: random.Random
    weights: dict[str, float]
    number: int = 0

    def burst(self) -> None:
        """Send a few requests of one tenant."""
        tenant = self.rnd.choice(list(self.weights))
        adapters = ["", *(a for a in ("a0", "a1", "a2", "a3", "a4", "a5") if self.engine.source.knows(a))]
        for _ in range(self.rnd.choice([1, 2, 10, 30])):
            self.number += 1
            new = request(
                self.number, tenant, self.rnd.randint(1, 60), self.rnd.randint(1, 40), self.rnd.choice(adapters),
                weight=self.weights[tenant],
            )  # fmt: skip
            if self.rnd.random() < 0.3:  # a prefix that others of its tenant share
                new.prompt_token_ids[:32] = [7] * len(new.prompt_token_ids[:32])
            self.engine.submit(new)

    def play(self, steps: int) -> Any:
        """Step with random bursts; yields what each step processed."""
        for _ in range(steps):
            if self.rnd.random() < 0.15:
                self.burst()
            yield self.engine.step()
