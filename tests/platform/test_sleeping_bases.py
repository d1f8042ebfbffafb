"""Base models that may sleep: who wants them, what a request meets at the door, and how it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone
from lorikeet_testing.platform_fixtures import Org

from control_plane.adapters.registry.models import AdapterVersion, VersionState
from control_plane.console.administration.actions import suspend_tenant
from control_plane.core.config import current
from control_plane.core.db import run_db
from control_plane.core.errors import LorikeetError
from control_plane.fleet.base_models import demand as base_demand
from control_plane.fleet.base_models.actions import BaseModelNotServedError, set_sleep
from control_plane.fleet.base_models.api.wakefulness import wakefulness
from control_plane.fleet.base_models.base_model import served_bases
from control_plane.fleet.base_models.demand import store_demand
from control_plane.fleet.base_models.models import BaseModel
from control_plane.fleet.hosts.models import EngineHost, HostState
from control_plane.gateway.dispatch import admission_cache
from control_plane.gateway.dispatch.admission import BaseAsleepError, authenticate_again
from control_plane.gateway.dispatch.admission_cache import AdmissionCache
from control_plane.gateway.dispatch.errors import of
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.access.principal import Principal
from control_plane.identity.accounts.actions import create_user, set_operator
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.keys.actions import revoke_key, rotate_key

pytestmark = pytest.mark.django_db


def base() -> BaseModel:
    return BaseModel.objects.get()


def is_wanted() -> bool:
    (found,) = wakefulness().values()
    return found.wanted


@pytest.fixture
def sleeper(host: EngineHost) -> BaseModel:
    """One that nobody has asked for since yesterday, and without a host."""
    set_sleep(actor=SYSTEM, digest=base().digest, after_s=600)
    BaseModel.objects.update(asked_at=timezone.now() - timedelta(days=1))
    EngineHost.objects.update(state=HostState.OFFLINE)
    return base()


# -- who is wanted ------------------------------------------------------------


def test_one_that_never_sleeps_is_always_wanted(host: EngineHost) -> None:
    EngineHost.objects.update(state=HostState.OFFLINE)
    assert is_wanted() and not served_bases().all[0].may_sleep


def test_one_that_may_sleep_is_wanted_for_a_while_after_each_request(sleeper: BaseModel) -> None:
    assert served_bases().all[0].may_sleep and not is_wanted()
    store_demand(sleeper.digest)
    assert is_wanted()
    BaseModel.objects.update(asked_at=timezone.now() + timedelta(days=40))
    assert not is_wanted(), "noted by a clock that was ahead"
    BaseModel.objects.update(asked_at=timezone.now() - timedelta(seconds=599))
    assert is_wanted()
    BaseModel.objects.update(asked_at=timezone.now() - timedelta(seconds=601))
    assert not is_wanted()
    BaseModel.objects.update(asked_at=None)
    assert not is_wanted()


def test_it_is_wanted_while_its_hosts_work_and_while_an_adapter_arrives(
    sleeper: BaseModel, acme: Org, ready_version: Callable[..., AdapterVersion]
) -> None:
    version = ready_version(acme, "support")
    EngineHost.objects.update(state=HostState.ONLINE, last_status={"running": 0, "waiting": 0})
    assert wakefulness()[sleeper.digest].online == 1 and not is_wanted()
    EngineHost.objects.update(last_status={"running": 1, "waiting": 0})
    assert is_wanted()
    EngineHost.objects.update(state=HostState.OFFLINE)
    assert not is_wanted(), "what a host said before it went counts no more"
    AdapterVersion.objects.filter(pk=version.pk).update(state=VersionState.STAGING)
    assert is_wanted()


def test_operators_say_when_it_may_sleep(host: EngineHost, acme: Org) -> None:
    user = create_user(actor=SYSTEM, email="ops@example.org", password="correct horse battery")
    set_operator(actor=SYSTEM, user=user, operator=True)
    client = acme.client()
    client.force_login(user)
    path = f"/api/operator/base-models/{base().digest}"
    assert client.patch(path, {"sleeps_after_s": 900}, format="json").json()["sleeps_after_s"] == 900
    assert base().asked_at is not None, "it may be in use at this moment"
    (event,) = AuditEvent.objects.filter(action="base_model.sleep")
    assert (event.detail["after_s"], event.detail["before"]) == (900, 0)
    client.patch(path, {"sleeps_after_s": 900}, format="json")
    assert AuditEvent.objects.filter(action="base_model.sleep").count() == 1
    (listed,) = client.get("/api/operator/base-models").json()
    assert (listed["sleeps_after_s"], listed["wanted"], listed["hosts_online"]) == (900, True, 1)
    for wrong in (-1, 59, 10**9, "soon", None):
        assert client.patch(path, {"sleeps_after_s": wrong}, format="json").status_code == 400, wrong
    assert client.patch(path, {}, format="json").json()["sleeps_after_s"] == 900
    both = client.patch(path, {"name": "other", "sleeps_after_s": 0}, format="json").json()
    assert (both["name"], both["sleeps_after_s"]) == ("other", 0)
    assert acme.client().patch(path, {"sleeps_after_s": 900}, format="json").status_code == 403
    with pytest.raises(BaseModelNotServedError):
        set_sleep(actor=SYSTEM, digest="sha256:none", after_s=0)


async def test_what_could_not_be_written_is_tried_again_and_the_rest_costs_nothing(monkeypatch: Any) -> None:
    written: list[str] = []

    def note(digest: str) -> None:
        written.append(digest)
        if len(written) == 1:
            raise OperationalError("away")

    monkeypatch.setattr(base_demand, "store_demand", note)
    monkeypatch.setattr(base_demand, "RETRY_S", 0.1)
    demand = base_demand.BaseDemand()
    for _ in range(30):
        demand.note("a")
        await asyncio.sleep(0.02)
    assert written == ["a", "a"]


# -- at the door --------------------------------------------------------------


@pytest.fixture
def quick(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.LORIKEET = current().model_copy(update={"wake_wait_s": 0.6})
    monkeypatch.setattr(admission_cache, "LOADING_POLL_S", 0.05)


class Reached:
    """Which hosts this process reaches."""

    def __init__(self, *hosts: str) -> None:
        self.hosts = {*hosts}

    def __call__(self, host: str, base_digest: str) -> bool:
        return host in self.hosts


async def caller(org: Org) -> Principal:
    return await run_db(org.principal)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quick")
async def test_a_request_wakes_it_and_waits_as_long_as_it_may(sleeper: BaseModel, acme: Org) -> None:
    cache, principal = AdmissionCache(Reached()), await caller(acme)
    began = asyncio.get_running_loop().time()
    with pytest.raises(BaseAsleepError) as asleep:
        await cache.admission(principal, sleeper.name)
    assert 0.4 < asyncio.get_running_loop().time() - began < 3
    answer = of(asleep.value).response()
    assert (answer.status_code, answer["Retry-After"]) == (503, "30")
    assert of(asleep.value).code == "base_asleep" and sleeper.name in of(asleep.value).message
    assert await run_db(is_wanted)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("what", ["revoked", "rotated", "suspended"])
async def test_a_wait_ends_with_the_callers_access(
    sleeper: BaseModel, acme: Org, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The error is that of the key, and the base model is not woken for it any longer."""
    monkeypatch.setattr(admission_cache, "JOINED_POLL_S", 0.05)
    key, _ = await run_db(lambda: acme.key("batch"))
    principal = await run_db(lambda: authenticate_again(key))
    cache = AdmissionCache(Reached())
    waiting = asyncio.create_task(cache.admission(principal, sleeper.name))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    if what == "suspended":
        await run_db(lambda: suspend_tenant(actor=SYSTEM, tenant=acme.tenant, reason="Unpaid."))
    elif what == "revoked":
        await run_db(lambda: revoke_key(acting=acme.principal(), key=key))
    else:
        await run_db(lambda: rotate_key(acting=acme.principal(), key=key, grace=timedelta(0)))
    with pytest.raises(LorikeetError) as refused:
        await waiting
    assert refused.value.code == ("tenant_suspended" if what == "suspended" else "invalid_api_key")


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quick")
async def test_many_that_wait_go_on_together_when_a_host_is_there(
    sleeper: BaseModel, acme: Org, monkeypatch: Any
) -> None:
    reached = Reached()
    cache, principal = AdmissionCache(reached), await caller(acme)
    looks: list[object] = []
    real = admission_cache.place

    def place(*asked: Any) -> Any:
        looks.append(asked)
        return real(*asked)

    monkeypatch.setattr(admission_cache, "place", place)
    waiting = [asyncio.create_task(cache.admission(principal, sleeper.name)) for _ in range(50)]
    await asyncio.sleep(0.3)
    assert not any(task.done() for task in waiting)
    assert len(looks) == 1, "those that wait do not ask the database again and again"
    reached.hosts.add("local")
    found = await asyncio.gather(*waiting)
    assert {admission.hosts for admission in found} == {("local",)}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quick")
async def test_who_does_not_wait_for_it_is_told_at_once(sleeper: BaseModel, acme: Org) -> None:
    began = asyncio.get_running_loop().time()
    with pytest.raises(BaseAsleepError):
        await AdmissionCache(Reached()).admission(await caller(acme), sleeper.name, wakes=False)
    assert asyncio.get_running_loop().time() - began < 0.4
    while not await run_db(is_wanted):  # a request that waits on its own wakes it so
        await asyncio.sleep(0.01)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quick")
async def test_an_adapter_of_it_waits_until_a_host_has_it(
    sleeper: BaseModel, acme: Org, ready_version: Callable[..., AdapterVersion]
) -> None:
    version = await run_db(lambda: ready_version(acme, "support"))
    reached, principal = Reached("local"), await caller(acme)
    await run_db(lambda: version.placements.update(boot_id="an earlier start"))
    with pytest.raises(BaseAsleepError):
        await AdmissionCache(reached).admission(principal, "support")
    boot = (await run_db(EngineHost.objects.get)).boot_id
    waits = asyncio.create_task(AdmissionCache(reached).admission(principal, "support"))
    await asyncio.sleep(0.2)
    await run_db(lambda: version.placements.update(boot_id=boot))
    assert (await waits).hosts == ("local",)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quick")
async def test_one_that_never_sleeps_is_not_waited_for(host: EngineHost, acme: Org) -> None:
    found = await AdmissionCache(Reached()).admission(await caller(acme), base_name := (await run_db(base)).name)
    assert found.hosts == ("local",) and found.sleeper is None and base_name
