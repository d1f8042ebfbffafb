"""Which requests move, by the integer program; and that a request that moves goes on where it was."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control_plane.fleet.routing.migration import (
    HostNow,
    Lengths,
    Moves,
    OpenRequest,
    Program,
    Rates,
    is_uneven,
    make_migration,
)
from control_plane.gateway.dispatch.migrator import Migrator
from lora_engine.wire import engine_pb2 as pb


def host(name: str, waiting: int = 0, running: int = 0, rate: float = 1000.0, **more: Any) -> HostNow:
    return HostNow(name, waiting, running, rate, prompt_token_s=1e-5, **more)


def asked(name: str, at: str, hosts: str, prompt: float = 100, output: int = 0, more: float = 100) -> OpenRequest:
    return OpenRequest(name, at, frozenset(hosts), prompt, output, more)


def plan(hosts: list[HostNow], requests: list[OpenRequest], **program: Any) -> Moves:
    rates = Rates()
    rates.observe(hosts, 1.0)
    return Program(**program).moves(hosts, requests, rates.of(hosts))


def test_half_of_what_waits_goes_to_the_idle_host() -> None:
    requests = [asked(f"r{n}", "a", "ab") for n in range(20)]
    found = plan([host("a", 20), host("b")], requests)
    assert 9 <= len(found.to) <= 10 and set(found.to.values()) == {"b"}
    assert found.after_s == pytest.approx(found.before_s / 2, rel=0.15)


def test_what_cannot_move_or_gains_nothing_stays() -> None:
    alone = [asked(f"r{n}", "a", "a") for n in range(20)]
    assert plan([host("a", 20), host("b")], alone).to == {}
    assert plan([host("a"), host("b")], []).to == {}
    assert plan([], []).to == {}
    assert plan([host("a", 20)], alone).to == {}
    even = [asked(f"{at}{n}", at, "ab") for n in range(10) for at in "ab"]
    assert plan([host("a", 10), host("b", 10)], even).to == {}
    # Of a host that this process does not see any more nothing is known.
    assert plan([host("b"), host("c")], [asked("r", "a", "abc")]).to == {}


def test_what_answers_already_leaves_only_where_memory_is_short_for_a_host_where_nothing_waits() -> None:
    running = [asked(f"old{n}", "a", "ab", output=50) for n in range(8)]
    waiting = [asked(f"new{n}", "a", "ab") for n in range(2)]
    found = plan([host("a", 2, 8), host("b")], [*running, *waiting])
    assert sorted(found.to) == ["new0", "new1"]
    full = host("a", 2, 8, pages=100, pages_used=95)
    found = plan([full, host("b", pages=100)], [*running, *waiting])
    assert len(found.to) == 5 and any(name.startswith("old") for name in found.to)
    found = plan([full, host("b", 1, pages=100)], [*running, *waiting])
    assert sorted(found.to) == ["new0", "new1"]


def test_memory_bounds_what_comes() -> None:
    """The idle host has room for three requests of 25 pages."""
    requests = [asked(f"r{n}", "a", "ab", prompt=200, more=200) for n in range(20)]
    roomy = plan([host("a", 20, pages=1000), host("b", pages=1000)], requests)
    tight = plan([host("a", 20, pages=1000), host("b", pages=100, pages_used=12)], requests)
    assert len(roomy.to) > 8
    assert len(tight.to) <= 4


def test_slower_hosts_get_less() -> None:
    requests = [asked(f"r{n}", "a", "abc") for n in range(30)]
    found = plan([host("a", 30, rate=1000), host("b", 1, 8, rate=1000), host("c", 1, 2, rate=250)], requests, most=2)
    got = Counter(found.to.values())
    assert got["b"] > 2 * got["c"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_every_plan_is_allowed_and_none_makes_the_longest_longer(seed: int) -> None:
    rnd = random.Random(seed)
    names = [f"h{n}" for n in range(rnd.randint(1, 12))]
    requests = [
        OpenRequest(
            f"r{n}",
            rnd.choice(names),
            frozenset(rnd.sample(names, rnd.randint(1, len(names)))),
            rnd.choice((0.0, 3.5, 4000.0)),
            rnd.choice((0, 0, 1, 900)),
            rnd.choice((1.0, 50.0, 5000.0)),
        )
        for n in range(rnd.randint(0, 60))
    ]
    here = Counter(request.host for request in requests)
    hosts = [
        HostNow(
            name,
            waiting=max(0, here[name] - 4) + rnd.choice((0, 0, 10)),
            running=min(4, here[name]),
            tokens_per_second=rnd.choice((0.0, 100.0, 5000.0)),
            prompt_token_s=rnd.choice((0.0, 4e-5)),
            pages_used=rnd.choice((0, 95)),
            pages=rnd.choice((0, 100)),
        )
        for name in names
    ]
    found = plan(hosts, requests, most=rnd.randint(1, 4))
    by_name = {request.name: request for request in requests}
    for name, to in found.to.items():
        assert to in by_name[name].hosts and to != by_name[name].host and to in names
    assert found.after_s <= found.before_s


@pytest.mark.parametrize("seed", range(6))
def test_near_the_best_of_all_placements(seed: int) -> None:
    """Ten requests, two hosts: all 1,024 placements are tried."""
    rnd = random.Random(seed)
    requests = [asked(f"r{n}", "a", "ab", prompt=rnd.randint(1, 5000), more=rnd.randint(1, 500)) for n in range(10)]
    hosts = [host("a", 10), host("b")]
    best = min(
        max(sum(r.work_s(hosts[to], 1000.0) for r, to in zip(requests, put, strict=True) if to == at) for at in (0, 1))
        for put in itertools.product((0, 1), repeat=10)
    )
    found = plan(hosts, requests)
    assert best <= found.after_s + 1e-9
    assert found.after_s <= best + max(r.work_s(hosts[0], 1000.0) for r in requests) / 2


def test_the_triggers() -> None:
    assert not is_uneven([]) and not is_uneven([host("a", 100, 100)])
    assert not is_uneven([host("a", 0, 100), host("b")]), "nothing waits"
    assert not is_uneven([host("a", 10, 10), host("b", 0, 5)]), "less than a batch"
    assert is_uneven([host("a", 20, 20), host("b")])
    full = host("a", 1, 10, pages=100, pages_used=95)
    assert is_uneven([full, host("b", 0, 9, pages=100, pages_used=50)])
    assert not is_uneven([full, full]), "nowhere to go"


def test_lengths_follow_what_was_seen_and_stay_bounded() -> None:
    lengths = Lengths()
    assert lengths.more("t", "a", 0, 0) == 128
    assert lengths.more("t", "a", 0, 16) == 16
    assert lengths.more("t", "a", 16, 16) == 1
    for _ in range(40):
        lengths.ended("t", "a", 10)
    assert lengths.more("t", "a", 0, 0) == pytest.approx(10, abs=1)
    assert lengths.more("t", "a", 500, 0) == 250  # it says more than any before
    for number in range(12_000):
        lengths.ended("t", f"a{number}", 5)
    assert len(lengths._mean) <= 10_000


def test_an_idle_host_is_taken_to_be_as_quick_as_the_quickest() -> None:
    rates = Rates()
    rates.observe([host("a", 5, 5, rate=900), host("b", 0, 1, rate=30), host("c", rate=0)], 0.0)
    assert rates.of([host("a", 5), host("b"), host("c")]) == {"a": 900, "b": 900, "c": 900}
    rates.observe([host("a", 5, 5, rate=300), host("c", 5, 5, rate=100)], 100.0)
    known = rates.of([host("a", 5), host("c", 5)])
    assert known == {"a": pytest.approx(331, abs=1), "c": 100}


def test_an_unknown_policy_is_told_the_known_ones() -> None:
    assert make_migration("off") is None
    with pytest.raises(ValueError, match="Supported: off, ilp"):
        make_migration("lp")


class Attempt:
    def __init__(self, request: OpenRequest | None) -> None:
        self.request, self.to, self.looked = request, "", 0

    @property
    def model_key(self) -> str:
        return self.request.name[-1] if self.request else ""

    async def refresh_hosts(self) -> None:
        self.looked += 1

    def open_request(self, _engine_id: str, lengths: Lengths) -> OpenRequest | None:
        return self.request

    def move(self, _engine_id: str, host: str) -> None:
        self.to = host


class Hosts:
    def __init__(self, *hosts: HostNow) -> None:
        self.hosts = [*hosts]

    def now(self) -> list[HostNow]:
        return self.hosts


async def test_a_look_moves_what_is_still_there() -> None:
    attempts: dict[str, Any] = {f"r{n}": Attempt(asked(f"r{n}", "a", "ab")) for n in range(40)}
    attempts["stays"] = Attempt(None)
    gone = attempts["r0"]

    class Slow(Program):
        def moves(self, *arguments: Any) -> Moves:
            attempts.pop("r0", None)  # it ended meanwhile
            return super().moves(*arguments)

    fleet: Any = Hosts(host("a", 40), host("b"))
    migrator = Migrator(fleet, attempts, Slow())
    told = await migrator.rebalance(Slow())
    moved = [name for name, attempt in attempts.items() if attempt.to]
    assert told >= 19 and len(moved) in (told, told - 1) and "stays" not in moved and gone.to == ""
    assert {attempts[name].to for name in moved} == {"b"}
    assert sum(attempt.looked for attempt in attempts.values()) == 11, "once for those that ask for the same"
    fleet.hosts = [host("a", 5), host("b", 5)]
    assert await migrator.rebalance(Slow()) == 0


async def test_without_a_policy_nothing_is_kept() -> None:
    migrator = Migrator(Hosts(), {}, None)  # type: ignore[arg-type]
    migrator.start()
    migrator.ended(pb.Submit(tenant="t"), 7)
    assert migrator._lengths._mean == {} and migrator._task is None
    await migrator.close()


async def test_a_plan_that_fails_does_not_end_the_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("control_plane.gateway.dispatch.migrator.EVERY_S", 0.01)
    looks = 0

    class Failing(Program):
        def moves(self, *_: Any) -> Moves:
            nonlocal looks
            looks += 1
            raise RuntimeError("no solver")

    migrator = Migrator(Hosts(host("a", 40), host("b")), {}, Failing())  # type: ignore[arg-type]
    migrator.start()
    async with asyncio.timeout(10):
        while looks < 3:
            await asyncio.sleep(0.01)
    await migrator.close()
