"""Engines are replaced one by one, killed, and stand still under load: nobody notices more than a pause.

Two real engines with the demo model on the processor. tests/e2e/test_host_faults.py has the same faults with the text
of each answer, in every run of the tests; the figures here are those of mixed callers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from lorikeet_testing.drills import Load, check_ledger, report
from lorikeet_testing.faulty_hosts import MODEL, FaultyFleet, Host, freeze, kill, replace, running

pytestmark = [pytest.mark.long, pytest.mark.e2e]
FAULTS: dict[str, tuple[Callable[[Host], Callable[[], None]], str]] = {
    "engines_rolling": (replace, "SIGTERM of each of two engines in turn, a second to drain, its next start"),
    "engine_killed": (kill, "SIGKILL of each of two engines in turn, its next start"),
    "engine_frozen": (freeze, "SIGSTOP of each of two engines in turn, SIGCONT after other answers"),
}


def body(number: int) -> dict[str, Any]:
    prompt = f"Tell me about river number {number % 12} and"
    messages = [{"role": "user", "content": prompt}]
    return {"model": MODEL, "messages": messages, "max_tokens": (8, 32, 100)[number % 3], "temperature": 0}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyFleet]:
    with running(FaultyFleet, tmp_path_factory.mktemp("engines"), "ab", {}) as made:
        yield made


@pytest.mark.parametrize("drill", FAULTS)
def test_engines_fail_in_turn(fleet: FaultyFleet, drill: str) -> None:
    inflict, what = FAULTS[drill]
    fleet.ready()
    load = Load(fleet.web.url, fleet.web.tenants["acme"].key, body)
    with load.running():
        for host in fleet.hosts:
            mend = inflict(host)
            try:
                load.progress()
                load.progress()
            finally:
                mend()
            fleet.ready()
            load.progress()
    report(drill, {"": load}, what, engine="demo model on the processor")
    assert load.failures == []
    check_ledger(fleet.web, load.answers)
