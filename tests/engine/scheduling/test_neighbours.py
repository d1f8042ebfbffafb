"""What a flood of one tenant does to another that has nothing running: a bounded first token, whatever the flood is."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest
from lorikeet_testing.traffic import TIMES, request

from lora_engine.request import GenerationRequest, Pooling, PoolingKind
from lora_engine.simulation import Machine, SimulatedAdapter, SimulatedEngine

PLACES, STEP_TOKENS, PAGES = 16, 128, 400
COPY_PAGE_S = 0.002
ADAPTERS = [SimulatedAdapter(f"f{n}", 16, 24) for n in range(64)] + [SimulatedAdapter("quiet", 16, 10)]


@dataclass(frozen=True)
class Flood:
    """The requests that one tenant sends at once, and how many more it sends with every step."""

    at_once: int
    each_step: int = 0
    prompt: int = 20
    output: int = 400
    choices: int = 1
    inputs: int = 0  # of an embedding request
    adapters: int = 0
    background: bool = False

    def request(self, number: int, tenant: str = "flood") -> GenerationRequest:
        adapter = f"f{number % self.adapters}" if self.adapters else ""
        new = request(f"{tenant}{number}", tenant, self.prompt, self.output, adapter, background=self.background)
        if self.inputs:
            more = [[2 + n] * self.prompt for n in range(self.inputs - 1)]
            return replace(new, pooling=Pooling(PoolingKind.LAST), more_prompts=tuple(more))
        return replace(new, sampling=replace(new.sampling, n=self.choices))


FLOODS = {
    "choices": Flood(50, choices=8),
    "long outputs": Flood(100, output=2000),
    "short requests": Flood(200, each_step=10, prompt=5, output=5),
    "many adapters": Flood(100, adapters=64),
    "huge prompts": Flood(40, prompt=2000, output=20),
    "memory": Flood(100, prompt=300, output=600),
    "batch": Flood(100, background=True),
    "batch of huge prompts": Flood(40, prompt=2000, output=20, background=True),
    "embeddings": Flood(20, prompt=500, inputs=16),
}


def engine_of(**settings: Any) -> SimulatedEngine:
    settings = {"max_running": PLACES, "step_tokens": STEP_TOKENS, "max_waiting": 100_000, **settings}
    return SimulatedEngine(Machine(TIMES, PAGES, ADAPTERS, copy_page_s=COPY_PAGE_S), **settings)


def first_token(engine: SimulatedEngine, new: GenerationRequest, flood: Flood | None = None) -> tuple[float, int]:
    """Seconds until the first token of ``new``, and steps, while the flood goes on."""
    began, steps, number = engine.clock.now, engine.steps, 10_000 * (1 + engine.steps)
    engine.submit(new)
    state = engine.core.requests[new.request_id]
    while state.first_token is None:
        for _ in range(flood.each_step if flood else 0):
            number += 1
            engine.submit(flood.request(number)) if flood else None
        engine.step()
        engine.core.check()
        assert engine.steps - steps < 3000, "it never comes"
    return state.first_token - began, engine.steps - steps


def slowest_step(engine: SimulatedEngine) -> float:
    """Seconds of the longest step that this machine can have with so many places."""
    return TIMES.step + TIMES.sequence * PLACES + TIMES.prompt_token * STEP_TOKENS


def bound(engine: SimulatedEngine, new: GenerationRequest) -> float:
    """1.5 times the request's own prefill, two steps, and the load of its adapter."""
    prefill = -(-len(new.prompt_token_ids) // STEP_TOKENS) * slowest_step(engine)
    load = COPY_PAGE_S * 10 if new.adapter_digest else 0.0
    return 1.5 * prefill + 2 * slowest_step(engine) + load


@pytest.mark.parametrize("shape", FLOODS)
@pytest.mark.parametrize("adapter", ["", "quiet"])
def test_an_idle_tenants_first_token_is_bounded_behind_any_flood(shape: str, adapter: str) -> None:
    flood = FLOODS[shape]
    engine = engine_of()
    for number in range(flood.at_once):
        engine.submit(flood.request(number))
    for _ in range(60):
        engine.step()
    for number, prompt in enumerate((10, 900)):  # and once more, soon after
        new = request(f"quiet{number}", "quiet", prompt, 4, adapter)
        waited, _ = first_token(engine, new, flood)
        copies = 0.0  # of the flood's adapters, which are on the bus before
        if flood.adapters and adapter:
            copies = engine.config.prefetch * COPY_PAGE_S * 24
        assert waited <= bound(engine, new) + copies, shape


def random_flood(rnd: random.Random) -> Flood:
    return Flood(
        at_once=rnd.randint(1, 60),
        each_step=rnd.choice([0, 0, 1, 5]),
        prompt=rnd.choice([1, 20, 200, 1500]),
        output=rnd.choice([1, 20, 400, 1500]),
        choices=rnd.choice([1, 1, 3, 8]),
        inputs=rnd.choice([0, 0, 0, 5]),
        adapters=rnd.choice([0, 0, 1, 64]),
        background=rnd.random() < 0.2,
    )


@pytest.mark.parametrize("batch", [0, *(pytest.param(batch, marks=pytest.mark.long) for batch in range(1, 200))])
def test_random_floods_of_one_tenant(batch: int) -> None:
    """Ten floods of random shapes and ages, other tenants beside them, and an idle tenant's requests behind each."""
    for seed in range(10):
        rnd = random.Random(1000 * batch + seed)
        flood, engine = random_flood(rnd), engine_of()
        for number in range(rnd.randint(0, 3)):
            engine.submit(request(f"other{number}", f"other{number}", rnd.randint(1, 50), rnd.randint(1, 500)))
        for number in range(flood.at_once):
            engine.submit(flood.request(number))
        for _ in range(rnd.randint(0, 200)):
            engine.step()
            engine.core.check()
        for number in range(2):
            new = request(f"quiet{number}", "quiet", rnd.choice([1, 100, 600]), 4, rnd.choice(["", "quiet"]))
            waited, _ = first_token(engine, new, flood)
            # What is on the bus before the quiet tenant's adapter is not called back.
            copies = engine.config.prefetch * COPY_PAGE_S * 24 if flood.adapters and new.adapter_digest else 0.0
            assert waited <= bound(engine, new) + copies, (seed, flood)
            for _ in range(rnd.randint(8, 40)):
                engine.step()


def test_nobody_is_preempted_while_one_tenant_is_alone() -> None:
    """The guard costs a tenant nothing that has the engine to itself: each step is the one without the guard."""
    for shape, flood in FLOODS.items():
        engines = [engine_of(guaranteed_share=share) for share in (0.0, 0.5)]
        for engine in engines:
            for number in range(flood.at_once):
                engine.submit(flood.request(number))
        for _ in range(150):
            steps = [{s.arrival: c.tokens for s, c in engine.step().items()} for engine in engines]
            assert steps[0] == steps[1], shape


def test_many_tenants_do_not_preempt_each_other_in_turn() -> None:
    """Four times as many tenants as places, each with more to do than it can have: hardly anybody gives way."""
    done = []
    for share in (0.0, 0.5):
        engine = engine_of(guaranteed_share=share)
        for number in range(64 * 8):
            engine.submit(request(number, f"t{number % 64}", 20, 40))
        engine.run([], until=12.0)
        done.append(sum(ended.usage.completion_tokens for ended in engine.ended))
    assert done[1] >= 0.97 * done[0]


def test_two_backlogged_tenants_do_not_preempt_each_other_in_turn() -> None:
    done = []
    for share in (0.0, 0.5):
        engine = engine_of(guaranteed_share=share)
        for number in range(400):
            engine.submit(request(f"short{number}", "short", 100, 5))
            engine.submit(request(f"long{number}", "long", 20, 300))
        engine.run([], until=12.0)
        done.append(sum(account.service for account in engine.core.queue.foreground.accounts))  # type: ignore[attr-defined]
    assert done[1] >= 0.97 * done[0]


def test_a_first_token_target_is_judged_with_the_place_that_others_give() -> None:
    """A request that gets its place at once is not refused because a flood waits."""
    engine = engine_of()
    for number in range(100):
        engine.submit(FLOODS["long outputs"].request(number))
    for _ in range(100):
        engine.step()
    assert engine.submit(request("quiet", "quiet", 10, 4, first_token_ms=500))
    assert not engine.submit(request("more", "flood", 10, 4, first_token_ms=500))


def test_a_full_queue_has_places_for_tenants_that_did_not_fill_it() -> None:
    engine = engine_of(max_waiting=100)
    for number in range(100 + PLACES):
        engine.submit(FLOODS["long outputs"].request(number))
    engine.step()
    assert not engine.core.may_queue("flood", 1)
    assert engine.core.may_queue("quiet", 50)
    assert not engine.core.may_queue("quiet", 51)


@pytest.mark.parametrize("shape", ["batch", "batch of huge prompts", "long outputs"])
def test_a_step_waits_for_a_short_copy_of_a_tenant_that_goes_first(shape: str) -> None:
    """An idle tenant's request with an adapter that is copied in a millisecond needs no step more than one without."""
    steps = {}
    for adapter in ("", "quiet"):
        machine = Machine(TIMES, PAGES, ADAPTERS, copy_page_s=0.0001)
        engine = SimulatedEngine(machine, max_running=PLACES, step_tokens=STEP_TOKENS, max_waiting=100_000)
        for number in range(FLOODS[shape].at_once):
            engine.submit(FLOODS[shape].request(number))
        for _ in range(60):
            engine.step()
        steps[adapter] = first_token(engine, request("quiet", "quiet", 10, 4, adapter))[1]
    assert steps["quiet"] == steps[""]
