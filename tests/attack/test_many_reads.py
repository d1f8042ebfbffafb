"""One caller's reads of the API beside everybody else's."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from control_plane.core.config import current
from control_plane.core.http import caller_limits
from control_plane.core.http.caller_limits import AT_ONCE, CPU_AT_ONCE_S, WAIT_S, CallerLimits, caller_of, charge


class Site:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.working: list[str] = []
        self.go = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.working.append(scope["path"])
        await self.go.wait()


def scope(path: str, key: str = "", method: str = "GET") -> dict[str, Any]:
    headers = [(b"authorization", key.encode())] if key else []
    return {"type": "http", "method": method, "path": path, "headers": headers, "client": ("192.0.2.1", 1)}


async def test_a_caller_has_so_many_reads_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen long lists at once doubled the time to others' first tokens."""
    site = Site()
    turns: Any = CallerLimits(site)
    many = [asyncio.ensure_future(turns(scope(f"/{number}", "Bearer a"), None, None)) for number in range(10)]
    await asyncio.sleep(0)
    assert len(site.working) == AT_ONCE
    others = [("/other", "Bearer b", "GET"), ("/stranger", "", "GET"), ("/write", "Bearer a", "POST")]
    asked = [asyncio.ensure_future(turns(scope(*other), None, None)) for other in others]
    await asyncio.sleep(0)
    assert site.working[AT_ONCE:] == ["/other", "/stranger", "/write"]
    many[-1].cancel()  # who goes away while waiting takes nobody's turn
    site.go.set()
    await asyncio.gather(*many, *asked, return_exceptions=True)
    assert len(site.working) == 12
    assert not turns._slots


async def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Downloads that are read slowly keep their turns."""
    monkeypatch.setattr(caller_limits, "WAIT_S", 0.01)
    site = Site()
    turns: Any = CallerLimits(site)
    many = [asyncio.ensure_future(turns(scope("/", "Bearer a"), None, None)) for _ in range(AT_ONCE + 1)]
    async with asyncio.timeout(10):
        while len(site.working) <= AT_ONCE:
            await asyncio.sleep(0.001)
    site.go.set()
    await asyncio.gather(*many)
    assert not turns._slots


async def answered(turns: CallerLimits, asked: dict[str, Any]) -> tuple[int, str]:
    """Status and code of the error, or 200 if the site had it."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        raise AssertionError("the body was read")

    await turns(asked, receive, send)
    return (sent[0]["status"], json.loads(sent[1]["body"])["error"]["code"]) if sent else (200, "")


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Nobody really waits, and the clock stands still."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(caller_limits.asyncio, "sleep", sleep)
    monkeypatch.setattr(caller_limits.time, "monotonic", lambda: 0.0)
    return slept


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_caller_has_a_part_of_a_processor(naps: list[float], method: str) -> None:
    """Two threads that read without a pause made each first token wait for the interpreter."""

    async def site(scope: Any, receive: Any, send: Any) -> None:
        charge(scope, 1.0)

    turns, share = CallerLimits(site), current().caller_cpu_share
    theirs, others = scope("/", "Bearer a", method), scope("/", "Bearer b", method)
    while (answer := await answered(turns, theirs)) == (200, ""):
        pass
    assert answer == (429, "too_much_work")
    assert naps[0] == pytest.approx((3.0 - CPU_AT_ONCE_S) / share)  # one second at a time
    assert len(naps) <= WAIT_S * share + 1
    slept = len(naps)
    assert await answered(turns, others) == (200, "")
    for _ in range(10):  # of strangers the rate is bounded
        assert await answered(turns, scope("/", method=method)) == (200, "")
    assert len(naps) == slept


def test_strangers_are_told_apart_by_network() -> None:
    one, other = scope("/"), {**scope("/"), "client": ("192.0.2.2", 1)}
    assert caller_of(one) != caller_of(other)
    assert caller_of({**one, "client": None}) is None
