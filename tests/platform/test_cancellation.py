"""What is awaited to its end although its caller is cancelled, and what is then undone."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from control_plane.adapters.uploads import spool
from control_plane.adapters.uploads.partial_file import Transfer
from control_plane.adapters.uploads.tus import _close
from control_plane.billing.limits.values import Limits
from control_plane.billing.quotas import reservations as reservations_module
from control_plane.billing.quotas.limiter_interface import Decision, LimiterUnavailableError, ReservationRequest, Scope
from control_plane.billing.quotas.memory_limiter import MemoryLimiter
from control_plane.billing.quotas.reservations import LimitsUnavailableError, Reservations
from control_plane.core.cancellation import to_completion
from control_plane.gateway.dispatch import constraint_checks
from control_plane.gateway.dispatch.constraint_checks import ConstraintChecks, RequestedConstraint
from control_plane.gateway.dispatch.idempotency import Claim, Idempotency
from control_plane.gateway.dispatch.idempotency_store import MemoryStore, Name, StoredAnswer
from lora_engine.constraints import Constraint, Kind


class Effect:
    """On something that a cancelled await does not stop."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.is_over = False
        self.undone: list[str] = []

    async def run(self) -> str:
        self.begun.set()
        await self.may_end.wait()
        self.is_over = True
        return "done"

    async def undo(self, result: str) -> None:
        await asyncio.sleep(0)
        self.undone.append(result)


@pytest.fixture
def effect() -> Effect:
    return Effect()


async def test_a_caller_that_stays_gets_the_result(effect: Effect) -> None:
    effect.may_end.set()
    assert await to_completion(effect.run(), undo=effect.undo) == "done"
    assert not effect.undone


async def test_a_caller_that_is_cancelled_ends_after_the_effect(effect: Effect) -> None:
    task = asyncio.create_task(to_completion(effect.run(), undo=effect.undo))
    await effect.begun.wait()
    for _ in range(3):  # a caller may be cancelled more than once
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    effect.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert effect.is_over and effect.undone == ["done"]


async def test_a_cancel_at_the_moment_of_the_end_undoes_too(effect: Effect) -> None:
    task = asyncio.create_task(to_completion(effect.run(), undo=effect.undo))
    await effect.begun.wait()
    effect.may_end.set()
    while not effect.is_over:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert effect.undone == ["done"]


async def test_an_effect_or_an_undo_that_fails_hides_no_cancel() -> None:
    async def fails(_: object = None) -> None:
        await asyncio.sleep(0)
        raise OSError

    async def succeeds() -> None:
        await asyncio.sleep(0)

    for effect, undo in ((fails, None), (succeeds, fails)):
        task = asyncio.create_task(to_completion(effect(), undo))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    with pytest.raises(OSError):
        await to_completion(fails())


# -- reservations ------------------------------------------------------------------------

SCOPES = (Scope("tenant", Limits(concurrency=1)),)


class Distant(MemoryLimiter):
    """Answers a while after it decided, or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.decided, self.answer = asyncio.Event(), asyncio.Event()
        self.failures = 0

    async def reserve(self, ask: ReservationRequest) -> Decision:
        decision = await super().reserve(ask)
        self.decided.set()
        await self.answer.wait()
        if self.failures:
            self.failures -= 1
            raise LimiterUnavailableError("no answer came")
        return decision

    async def settle(self, ask: ReservationRequest, tokens: int | None) -> bool:
        if self.failures:
            self.failures -= 1
            raise LimiterUnavailableError("no answer came")
        return await super().settle(ask, tokens)


async def test_a_reservation_is_ended_when_its_caller_leaves() -> None:
    limiter = Distant()
    reservations = Reservations(limiter, fail_open=False)
    task = asyncio.create_task(reservations.reserve("a", "t", SCOPES, 10))
    await limiter.decided.wait()
    task.cancel()
    limiter.answer.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    await reservations.close()
    reading = (await limiter.read("t", SCOPES))[0]
    assert (reading.open, reading.tokens) == (0, 0)


@pytest.mark.parametrize("fail_open", [True, False])
async def test_a_reservation_without_an_answer_is_ended_once_the_counters_are_back(
    monkeypatch: pytest.MonkeyPatch, fail_open: bool
) -> None:
    monkeypatch.setattr(reservations_module, "RETRY_S", 0.001)
    limiter = Distant()
    limiter.answer.set()
    limiter.failures = 5  # the decision, and four tries to end it
    reservations = Reservations(limiter, fail_open=fail_open)
    if fail_open:
        assert await reservations.reserve("a", "t", SCOPES, 10) is None
    else:
        with pytest.raises(LimitsUnavailableError):
            await reservations.reserve("a", "t", SCOPES, 10)
    assert (await limiter.read("t", SCOPES))[0].open == 1
    while reservations._settling:
        await asyncio.sleep(0.001)
    assert (await limiter.read("t", SCOPES))[0].open == 0
    await reservations.close()


# -- keys ----------------------------------------------------------------------------------


class SlowStore(MemoryStore):
    """Takes its time to renew a claim."""

    def __init__(self) -> None:
        super().__init__()
        self.renewing = asyncio.Event()
        self.renewed = asyncio.Event()

    async def renew(self, name: Name, stored: StoredAnswer, seconds: int) -> None:
        self.renewing.set()
        await self.renewed.wait()
        await super().renew(name, stored, seconds)


async def test_a_claim_that_is_dropped_while_it_is_renewed_is_free() -> None:
    store = SlowStore()
    idempotency, name = Idempotency(store), Name("t", "d")
    claim = Claim(idempotency, name, "f")
    await store.claim(name, claim.stored, 15)
    claim.renew()
    await store.renewing.wait()
    claim.release()
    await asyncio.sleep(0)
    store.renewed.set()
    await idempotency.close()
    assert store._get(name) is None


# -- threads and files -----------------------------------------------------------------------


async def test_a_transfer_that_nobody_waits_for_leaves_no_lock(tmp_path: Path) -> None:
    for _ in range(20):
        task = asyncio.create_task(to_completion(spool.on_disk(Transfer, tmp_path), undo=_close))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        Transfer(tmp_path).close()  # raises UploadBusyError if it is locked


async def test_a_file_is_not_closed_below_the_thread_that_writes() -> None:
    begun, may_end, order = threading.Event(), threading.Event(), list[str]()

    def write() -> None:
        begun.set()
        may_end.wait()
        order.append("written")

    async def take() -> None:
        try:
            await spool.on_disk(write)
        finally:
            order.append("closed")

    task = asyncio.create_task(take())
    await asyncio.to_thread(begun.wait)
    task.cancel()
    await asyncio.sleep(0)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert order == ["written", "closed"]


async def test_checks_of_a_tenant_that_leaves_stay_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, may_end = 0, 0, threading.Event()
    lock = threading.Lock()

    def verdict(_: Constraint) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        may_end.wait(10)
        with lock:
            running -= 1

    monkeypatch.setattr(constraint_checks, "_verdict", verdict)
    checks = ConstraintChecks()
    asked = [RequestedConstraint(Constraint(Kind.REGEX, "a" * number), "p") for number in range(1, 5)]
    tasks = [asyncio.create_task(checks.check(one, "t")) for one in asked]
    while not running:
        await asyncio.sleep(0.001)
    for task in tasks[:3]:
        task.cancel()
    await asyncio.sleep(0.01)
    assert not tasks[0].done(), "the turn is over before the thread is"
    may_end.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert most == 1
    checks.close()
