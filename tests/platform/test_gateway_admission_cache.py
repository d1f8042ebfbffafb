"""What the gateway remembers for a second, and how soon a write makes it look again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from django.db import OperationalError, transaction

from control_plane.adapters.imports.hub_models import HubModelLoadingError
from control_plane.adapters.registry.archiving import archive_as
from control_plane.adapters.registry.models import Alias
from control_plane.core.db import run_db
from control_plane.core.errors import LorikeetError
from control_plane.core.events import waiting
from control_plane.fleet.hosts.models import EngineHost, HostService, StagingPhase
from control_plane.fleet.placements.models import Placement
from control_plane.gateway.dispatch import admission, admission_cache
from control_plane.gateway.dispatch.admission import Admission
from control_plane.gateway.dispatch.admission_cache import AdmissionCache
from control_plane.identity import single_flight as fresh_module
from control_plane.identity.access.actor import SYSTEM, ActorKind
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.keys.actions import revoke_key
from control_plane.identity.keys.auth import InvalidKeyError
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.single_flight import SingleFlightCache
from control_plane.identity.tenants.models import Tenant


class Looks:
    def __init__(self, answers: list[str]) -> None:
        self.answers, self.count = answers, 0

    def __call__(self) -> str:
        self.count += 1
        return self.answers[min(self.count, len(self.answers)) - 1]


class Clock:
    """Stands still unless it is told otherwise."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(fresh_module, "time", clock)
    return clock


@dataclass(frozen=True)
class Ready(Admission):
    principal: Any = None
    model: Any = None
    hosts: Any = ("local",)
    base_digest: str = ""
    limits: Any = None
    budgets: Any = None
    targets: Any = None


async def test_what_is_being_imported_is_waited_for_a_while(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loading = HubModelLoadingError("hub:org/name", "it is fetched")
    answers: list[object] = [loading, loading, Ready()]

    async def admission(principal: Principal, model: str) -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(admission_cache, "LOADING_POLL_S", 0.01)
    cache, caller = AdmissionCache(), Principal(Tenant(), frozenset())
    monkeypatch.setattr(cache, "_admission", admission)
    assert isinstance(await cache.admission(caller, "hub:org/name"), Ready)
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"hub_model_wait_s": 0.0})
    answers[:] = [loading]
    with pytest.raises(HubModelLoadingError):
        await cache.admission(caller, "hub:org/name")


async def test_who_waits_for_an_import_is_told_of_changes(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next look by itself would be too late."""
    looks: list[str] = []

    async def admission(principal: Principal, model: str) -> object:
        looks.append(model)
        if len(looks) < 3:
            raise HubModelLoadingError("hub:org/name", "it is fetched")
        return Ready()

    monkeypatch.setattr(admission_cache, "LOADING_POLL_S", 60.0)
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"hub_model_wait_s": 120.0})
    cache, tenant = AdmissionCache(), Tenant()
    monkeypatch.setattr(cache, "_admission", admission)
    asked = asyncio.create_task(cache.admission(Principal(tenant, frozenset()), "hub:org/name"))
    while not looks:
        await asyncio.sleep(0)
    for seen in (1, 2):
        waiting.tell(Tenant().pk)  # another's
        await asyncio.sleep(0.01)
        assert len(looks) == seen
        await asyncio.to_thread(waiting.tell, str(tenant.pk))
        async with asyncio.timeout(10):
            while len(looks) == seen:
                await asyncio.sleep(0)
    assert isinstance(await asked, Ready)
    assert not waiting._waiting


@pytest.mark.parametrize("answer", [OperationalError("away"), None], ids=["away", "slow"])
async def test_without_the_database_a_request_that_waited_is_sent(
    monkeypatch: pytest.MonkeyPatch, answer: Exception | None
) -> None:
    """It was admitted, and its slot of a host is not held for long."""

    async def query(_read: Any) -> Any:
        if answer is not None:
            raise answer
        await asyncio.sleep(60)

    monkeypatch.setattr(fresh_module, "run_db", query)
    monkeypatch.setattr(admission_cache, "SLOW_S", 0.02)
    async with asyncio.timeout(5):
        await AdmissionCache().check_again(Principal(Tenant(), frozenset(), api_key=ApiKey()))


async def test_one_look_a_second(clock: Clock) -> None:
    fresh: SingleFlightCache[str] = SingleFlightCache()
    look = Looks(["first", "second"])
    assert [await fresh.get("k", look) for _ in range(3)] == ["first"] * 3
    clock.now += 1.01
    assert await fresh.get("k", look) == "second"
    assert await fresh.get("other", Looks(["x"])) == "x"


async def test_who_asks_often_waits_for_no_look(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request of each second waited for the database: that was the P99 of first tokens."""
    fresh: SingleFlightCache[str] = SingleFlightCache()
    look, answers = Looks(["first", "second"]), asyncio.Event()
    assert await fresh.get("k", look) == "first"

    async def slowly(look: Looks) -> str:
        await answers.wait()
        return look()

    monkeypatch.setattr(fresh_module, "run_db", slowly)
    clock.now += fresh_module.AHEAD_S + 0.01
    assert [await fresh.get("k", look) for _ in range(3)] == ["first"] * 3
    answers.set()
    clock.now += fresh_module.FRESH_S - fresh_module.AHEAD_S  # the first answer is too old now
    assert await fresh.get("k", look) == "second"
    assert look.count == 2


async def test_many_at_once_share_a_look() -> None:
    fresh: SingleFlightCache[str] = SingleFlightCache()
    look = Looks(["answer"])
    asking = [asyncio.ensure_future(fresh.get("k", look)) for _ in range(50)]
    await asyncio.sleep(0)
    asking[0].cancel()
    assert await asyncio.gather(*asking[1:]) == ["answer"] * 49
    assert look.count == 1


async def test_a_write_forgets_also_what_is_being_read() -> None:
    fresh: SingleFlightCache[str] = SingleFlightCache()

    def look_while_somebody_writes() -> str:
        fresh_module.forget()
        return "stale"

    assert await fresh.get("k", look_while_somebody_writes) == "stale"
    assert fresh.peek("k") is None
    assert await fresh.get("k", Looks(["new"])) == "new"


async def test_a_tenants_write_forgets_what_its_tenant_is_told() -> None:
    """Another tenant's 150 uploads made every request wait for the database."""
    ours, theirs = uuid4(), uuid4()
    fresh: SingleFlightCache[str] = SingleFlightCache(tenant_of=lambda *_: ours)
    look = Looks(["first", "second", "third"])
    assert await fresh.get("k", look) == "first"
    fresh_module.forget(theirs)
    fresh_module.mark_stale(theirs)
    assert fresh.peek("k") == "first"
    fresh_module.forget(ours)
    assert fresh.peek("k") is None
    assert await fresh.get("k", look) == "second"
    fresh_module.mark_stale()  # the platform's
    assert fresh.peek("k") is None
    assert await fresh.get("k", look) == "third"


@pytest.mark.parametrize(
    ("action", "kept"), [("upload.receive", True), ("session.create", True), ("key.revoke", False)]
)
async def test_a_write_that_changes_nobodys_rights_forgets_nothing(
    action: str, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upload made its own tenant's requests wait for the database, a sign-in everybody's."""
    monkeypatch.setattr(transaction, "on_commit", lambda call, robust: call())
    fresh: SingleFlightCache[str] = SingleFlightCache()
    await fresh.get("k", Looks(["answer"]))
    fresh_module.forget_after_commit(AuditEvent(action=action, actor_kind=ActorKind.USER))
    assert (fresh.peek("k") is not None) == kept


async def test_errors_are_not_remembered() -> None:
    fresh: SingleFlightCache[str] = SingleFlightCache()

    def fail() -> str:
        raise ValueError

    with pytest.raises(ValueError):
        await fresh.get("k", fail)
    assert await fresh.get("k", Looks(["right"])) == "right"


async def test_what_is_not_worth_keeping_is_looked_up_again() -> None:
    fresh: SingleFlightCache[str] = SingleFlightCache(bool)
    look = Looks(["", "host", "other"])
    assert [await fresh.get("k", look) for _ in range(3)] == ["", "host", "host"]


@pytest.mark.django_db(transaction=True)
async def test_a_revoked_key_is_refused_at_once(acme: Any) -> None:
    ours = AdmissionCache()
    key, text = await run_db(acme.key)
    assert (await ours.caller(text)).api_key == key
    assert (await ours.caller(text)).api_key == key
    principal = await run_db(acme.principal)
    await run_db(lambda: revoke_key(acting=principal, key=key))
    with pytest.raises(InvalidKeyError):
        await ours.caller(text)


@pytest.mark.django_db(transaction=True)
async def test_and_within_a_second_if_another_process_revoked_it(acme: Any, clock: Clock) -> None:
    ours = AdmissionCache()
    key, text = await run_db(acme.key)
    await ours.caller(text)
    clock.now += 0.99
    await run_db(lambda: ApiKey.objects.filter(pk=key.pk).update(revoked_at=key.created_at))
    assert (await ours.caller(text)).api_key == key
    clock.now += 0.02
    with pytest.raises(InvalidKeyError):
        await ours.caller(text)


@pytest.mark.django_db(transaction=True)
async def test_a_host_that_comes_is_used_at_once(acme: Any, ready_version: Any, clock: Clock) -> None:
    """Not after the second for which other answers are remembered."""
    ours = AdmissionCache()
    await run_db(lambda: ready_version(acme))
    hosts = EngineHost.objects.filter(active=True)
    await run_db(lambda: Placement.objects.update(phase=StagingPhase.READY))
    await run_db(lambda: hosts.update(boot_id=""))
    caller = await ours.caller((await run_db(acme.key))[1])
    assert not (await ours.admission(caller, "support")).hosts
    await run_db(lambda: hosts.update(boot_id="boot"))
    await run_db(lambda: Placement.objects.update(boot_id="boot"))
    assert (await ours.admission(caller, "support")).hosts


@pytest.fixture
async def called(acme: Any, ready_version: Any) -> Any:
    """The version behind "support", and a caller of it."""
    version = await run_db(lambda: ready_version(acme))
    await run_db(lambda: Placement.objects.update(phase=StagingPhase.READY, boot_id="boot"))
    await run_db(lambda: EngineHost.objects.filter(active=True).update(boot_id="boot"))
    return version, await AdmissionCache().caller((await run_db(acme.key))[1])


@pytest.mark.django_db(transaction=True)
async def test_a_model_that_is_archived_during_an_admission_is_not_found(
    called: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query for hosts runs after the archiving, and finds none: the answer is not that a host will come."""
    version, caller = called

    def hosts_with(*arguments: Any) -> frozenset[int] | None:
        archive_as(SYSTEM, version.adapter)
        return real_hosts_with(*arguments)

    real_hosts_with = admission._hosts_with
    monkeypatch.setattr(admission, "_hosts_with", hosts_with)
    with pytest.raises(LorikeetError) as refused:
        await AdmissionCache().admission(caller, "support")
    assert refused.value.code == "model_not_found"


@pytest.mark.django_db(transaction=True)
async def test_many_adapters_of_a_tenant_cost_few_looks(
    called: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of 64 adapters was looked up once a second: a third of a web process's time."""
    (version, caller), ours, placed = called, AdmissionCache(), []

    def place(principal: Principal, model: str, fleet: Any) -> Any:
        placed.append(model)
        return real_place(principal, model.partition("#")[0], fleet)

    real_place = admission_cache.place
    monkeypatch.setattr(admission_cache, "place", place)
    for _ in range(50):
        for number in range(8):
            assert (await ours.admission(caller, f"support#{number}")).model.version == version
        clock.now += 0.1
        await asyncio.sleep(0)
    assert len(placed) <= 8 * (1 + 5.0 / (admission_cache.PLACED_S * (fresh_module.AHEAD_S - fresh_module.SPREAD)))
    assert len(set(placed)) == 8


@pytest.mark.django_db(transaction=True)
async def test_what_another_process_writes_counts_within_a_second(called: Any, acme: Any, clock: Clock) -> None:
    (version, caller), ours = called, AdmissionCache()
    await ours.admission(caller, "support")

    def elsewhere() -> None:
        """What the action writes, without what it tells this process."""
        Alias.objects.filter(adapter=version.adapter).delete()
        AuditEvent.objects.create(tenant=acme.tenant, actor_kind=ActorKind.USER, action="alias.delete")

    await run_db(elsewhere)
    clock.now += 0.5
    assert (await ours.admission(caller, "support")).model.version == version
    clock.now += 0.6
    with pytest.raises(LorikeetError):
        await ours.admission(caller, "support")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("change", [{"boot_id": "anew"}, {"service": HostService.CORDONED}, {"active": False}])
async def test_a_host_that_goes_or_starts_anew_counts_within_a_second(
    called: Any, clock: Clock, change: dict[str, Any]
) -> None:
    (_, caller), ours = called, AdmissionCache()
    assert (await ours.admission(caller, "support")).hosts
    await run_db(lambda: EngineHost.objects.update(**change))
    clock.now += 1.01
    assert not (await ours.admission(caller, "support")).hosts
