"""A host with another base model is never used for this one, whenever and however it joins; what it broke heals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from lorikeet_testing import peft_files
from lorikeet_testing.fake_engine import BASE_DIGEST, Behaviour, FakeEngine, FakeEngineThread
from lorikeet_testing.platform_fixtures import Org, Uploader
from lorikeet_testing.seed import add_version

from control_plane.adapters.registry.models import AdapterVersion, VersionState
from control_plane.core.config import current
from control_plane.core.db import run_db
from control_plane.core.errors import LorikeetError
from control_plane.core.jobs import clocks
from control_plane.core.metrics.registry import INSTALLATION
from control_plane.fleet.base_models.actions import AdaptersDoNotFitError, set_base_model
from control_plane.fleet.base_models.base_model import served_bases
from control_plane.fleet.base_models.models import BaseModel
from control_plane.fleet.hosts import actions as fleet_actions
from control_plane.fleet.hosts.leader_election import FileLease
from control_plane.fleet.hosts.models import EngineHost, StagingPhase
from control_plane.fleet.hosts.watcher import FleetWatcher
from control_plane.fleet.placements import actions, tasks
from control_plane.fleet.placements.actions import restage_version
from control_plane.fleet.placements.models import Placement
from control_plane.fleet.routing.connections import Fleet
from control_plane.fleet.transport.blocking_client import engine_calls
from control_plane.fleet.transport.endpoint import HostEndpoint, configured_endpoints
from control_plane.fleet.transport.errors import HostError
from control_plane.gateway.dispatch.admission import admit
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.accounts.actions import create_user, set_operator
from control_plane.identity.audit.models import AuditEvent
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire.versions import SUPPORTED, WIRE_VERSION

pytestmark = pytest.mark.django_db
OTHER = "sha256:" + "0bad" * 16
FOREIGN = "other_base_model"


def describe(digest: str = BASE_DIGEST, boot: str = "boot", **fields: Any) -> pb.EngineDescription:
    geometry = fields.pop("geometry", pb.BaseGeometry(num_layers=2, hidden_size=64))
    name = "fake-base" if digest == BASE_DIGEST else "another"
    return pb.EngineDescription(
        boot_id=boot, base_model=name, base_digest=digest, geometry=geometry, max_lora_rank=64, **fields
    )


@pytest.fixture
def names(settings: Any) -> Callable[..., None]:
    """Configures hosts of these names, in this order, which nobody calls."""

    def configure(*names: str) -> None:
        hosts = {name: f"unix:/nowhere/{name}.sock" for name in names}
        settings.LORIKEET = current().model_copy(update={"engine_hosts": hosts})
        fleet_actions.sync_hosts(configured_endpoints())

    return configure


@pytest.fixture
def engines(tmp_path: Path, settings: Any) -> Iterator[SimpleNamespace]:
    """Two engines: `one` with the base model, `two` with other weights of the same shape."""
    one = FakeEngineThread(f"unix:{tmp_path}/one.sock")
    two = FakeEngineThread(f"unix:{tmp_path}/two.sock", Behaviour(base_digest=OTHER), base_model="another")
    hosts = {"one": one.engine.address, "two": two.engine.address}
    settings.LORIKEET = current().model_copy(update={"engine_hosts": hosts})
    fleet_actions.sync_hosts(configured_endpoints())
    yield SimpleNamespace(one=one, two=two)
    one.close()
    two.close()


def see(*names: str) -> None:
    """What the watcher does when it meets hosts."""
    for name in names:
        with engine_calls(configured_endpoints()[name]) as calls:
            fleet_actions.record_boot(name, calls.describe())


def restart(thread: FakeEngineThread, digest: str) -> None:
    thread.stop()
    thread.engine.behaviour.base_digest = digest
    thread.start()


def stage_all() -> None:
    tasks.reconcile()
    work_off()


def work_off() -> None:
    """What workers do until nothing is left that can be done now."""
    EngineHost.objects.exclude(boot_id="").update(state="online")
    while tasks.stage_next():
        pass


def placed() -> set[tuple[str, str]]:
    return set(Placement.objects.values_list("host__name", "phase"))


def callable_on(org: Org, model: str = "support") -> tuple[str, ...]:
    return admit(org.principal(), model).hosts


def shown(org: Org) -> dict[str, str | None]:
    hosts = org.client().get(org.path("hosts")).json()
    return {host["name"]: host["quarantine"] and host["quarantine"]["code"] for host in hosts}


# -- which base model it is -------------------------------------------------------


def test_at_the_first_start_it_is_that_of_the_first_host_by_name_not_by_time(names: Any, acme: Org) -> None:
    names("zeta", "alpha")
    fleet_actions.record_boot("alpha", describe(OTHER))
    assert not served_bases()
    assert shown(acme) == {"zeta": None, "alpha": "base_model_undecided"}
    assert acme.client().get("/api/operator/base-model").status_code == 403
    fleet_actions.record_boot("zeta", describe())
    base = served_bases().only
    assert base is not None and (base.name, base.digest) == ("fake-base", BASE_DIGEST)
    assert shown(acme) == {"zeta": None, "alpha": FOREIGN}
    assert AuditEvent.objects.get(action="base_model.set").detail["digest"] == BASE_DIGEST


def test_it_outlives_every_restart_in_any_order(names: Any) -> None:
    names("one", "two")
    fleet_actions.record_boot("one", describe())
    names("two", "one")  # also another order in the settings
    for boot in ("a", "b"):
        fleet_actions.record_boot("two", describe(OTHER, boot))
        fleet_actions.record_boot("one", describe(OTHER, boot))
        base = served_bases().only
        assert base is not None and base.digest == BASE_DIGEST
    fleet_actions.sync_hosts({})
    assert served_bases(), "also without any host"


@pytest.mark.parametrize(("first", "second", "reason"), [("", "t1", None), ("t1", "", None), ("t1", "t2", "other")])
def test_the_same_weights_with_another_tokenizer(
    names: Any, acme: Org, first: str, second: str, reason: str | None
) -> None:
    names("one", "two")
    fleet_actions.record_boot("one", describe(text_digest=first))
    fleet_actions.record_boot("two", describe(text_digest=second))  # "": an older engine does not say it
    assert shown(acme)["two"] == (reason and "other_tokenizer")
    fleet_actions.record_boot("one", describe(text_digest="t1"))
    assert BaseModel.objects.get(withdrawn_at=None).text_digest == "t1"


def test_the_smallest_host_bounds_what_adapters_may_be(names: Any) -> None:
    names("one", "two")
    fleet_actions.record_boot("one", describe())
    small = describe(boot="small")
    small.max_lora_rank = 16
    fleet_actions.record_boot("two", small)
    base = served_bases().only
    assert base is not None and base.max_lora_rank == 16
    foreign = describe(OTHER)
    foreign.max_lora_rank = 1
    fleet_actions.record_boot("two", foreign)
    base = served_bases().only
    assert base is not None and base.max_lora_rank == 64


# -- a host of another one ----------------------------------------------------------


def test_it_gets_neither_adapters_nor_requests_and_is_shown(
    engines: SimpleNamespace, acme: Org, caplog: pytest.LogCaptureFixture
) -> None:
    add_version(acme.tenant, "support")
    with caplog.at_level(logging.WARNING, "control_plane.fleet.hosts"):
        see("one", "two")
    stage_all()
    assert placed() == {("one", "ready")}
    assert engines.two.engine.stage_calls == []
    assert callable_on(acme) == callable_on(acme, "fake-base") == ("one",)
    assert admit(acme.principal(), "fake-base").fingerprint == "fp_ba5eba5eba5e"
    assert shown(acme) == {"one": None, "two": FOREIGN}
    assert "two is in quarantine" in caplog.text and "set_base_model" in caplog.text
    row = AuditEvent.objects.get(action="host.quarantine")
    assert (row.tenant, row.target_label, row.detail["base_digest"]) == (None, "two", OTHER)
    assert INSTALLATION.get_sample_value("lorikeet_engine_hosts", {"state": "quarantine"}) == 1
    assert INSTALLATION.get_sample_value("lorikeet_engine_hosts", {"state": "online"}) == 1
    see("two")
    assert AuditEvent.objects.filter(action="host.quarantine").count() == 1, "once for each start"


def test_a_host_that_comes_back_with_another_model_and_then_with_the_right_one(
    engines: SimpleNamespace, acme: Org
) -> None:
    version = add_version(acme.tenant, "support")
    engines.two.engine.behaviour.base_digest = BASE_DIGEST
    restart(engines.two, BASE_DIGEST)
    see("one", "two")
    stage_all()
    assert placed() == {("one", "ready"), ("two", "ready")}
    restart(engines.two, OTHER)
    see("two")
    assert placed() == {("one", "ready")}, "it is not said to be ready where it is not"
    assert callable_on(acme) == ("one",)
    stage_all()
    assert placed() == {("one", "ready")}
    restart(engines.two, BASE_DIGEST)
    see("two")
    stage_all()
    assert placed() == {("one", "ready"), ("two", "ready")}
    version.refresh_from_db()
    assert version.state == VersionState.READY
    assert set(callable_on(acme)) == {"one", "two"}
    assert AuditEvent.objects.filter(action="host.release").count() == 1


@pytest.mark.parametrize("engine_checks", [True, False])
def test_a_host_whose_change_nobody_has_seen_yet_is_not_staged_to(
    engines: SimpleNamespace, acme: Org, engine_checks: bool
) -> None:
    add_version(acme.tenant, "support")
    see("one")
    tasks.reconcile()
    engines.one.engine.behaviour.checks_base = engine_checks
    restart(engines.one, OTHER)
    work_off()
    (placement,) = Placement.objects.all()
    assert placement.error is not None and placement.error["code"] == FOREIGN
    assert engines.one.engine.resident == {}


def test_an_engine_refuses_to_stage_for_another_base_model(engines: SimpleNamespace) -> None:
    with engine_calls(configured_endpoints()["two"]) as calls:
        (failed,) = calls.stage(pb.StageAdapterRequest(digest="sha256:1", base_digest=BASE_DIGEST))
    assert (failed.phase, failed.error.code) == (pb.StageEvent.FAILED, FOREIGN)


async def test_a_web_process_believes_the_engine_and_not_the_database(tmp_path: Path) -> None:
    """The database still says that both hosts serve the model; one of them was started with another."""
    engine = FakeEngine(f"unix:{tmp_path}/e.sock", Behaviour(base_digest=OTHER, checks_base=False))
    await engine.start()
    fleet = Fleet({"two": HostEndpoint("two", engine.address)})
    fleet.start()
    submit = pb.Submit(request_id="r", text="hello", base_digest=BASE_DIGEST)
    async with asyncio.timeout(20):
        while not fleet.client("two").connected:
            await asyncio.sleep(0.01)
    with pytest.raises(HostError, match="no_ready_host"):
        await fleet.submit(submit, ["two"], "fake-base")
    assert engine.submits == []
    engine.behaviour.checks_base = True
    stream = await fleet.client("two").submit(submit)
    with pytest.raises(HostError, match=FOREIGN):
        await anext(stream)
    await fleet.close()
    await engine.stop()


@pytest.mark.django_db(transaction=True)
async def test_another_engine_on_the_same_connection(tmp_path: Path, settings: Any) -> None:
    engine = FakeEngine(f"unix:{tmp_path}/e.sock")
    await engine.start()
    settings.LORIKEET = current().model_copy(update={"engine_hosts": {"one": engine.address}})
    watcher = FleetWatcher(configured_endpoints, FileLease(tmp_path / "l"), interval_s=0.1)
    task = asyncio.create_task(watcher.run())

    async def seen(condition: Callable[[EngineHost], bool]) -> None:
        async with asyncio.timeout(30):
            while True:
                host = await run_db(EngineHost.objects.filter(name="one").first)
                if host is not None and condition(host):
                    return
                await asyncio.sleep(0.02)

    await seen(lambda host: host.boot_id == engine.boot_id and bool(host.last_status))
    engine.boot_id, engine.behaviour.base_digest = "another-boot", OTHER
    await seen(lambda host: host.description["base_digest"] == OTHER)
    assert await run_db(lambda: callable_hosts_of_base()) == []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await engine.stop()


def callable_hosts_of_base() -> list[str]:
    from control_plane.fleet.base_models.base_model import serving_hosts

    return [host.name for host in serving_hosts(served_bases())]


# -- the base model is replaced on purpose --------------------------------------------


def operator_client(org: Org) -> Any:
    operator = create_user(actor=SYSTEM, email="ops@example.org", password="correct horse battery")
    set_operator(actor=SYSTEM, user=operator, operator=True)
    client = org.client()
    client.force_login(operator)
    return client


def test_operators_decide_it_by_naming_a_host(engines: SimpleNamespace, acme: Org) -> None:
    client = operator_client(acme)
    path = "/api/operator/base-model"
    assert client.get(path).json()["error"]["code"] == "base_model_undecided"
    see("one", "two")
    assert client.get(path).json()["digest"] == BASE_DIGEST
    answer = client.put(path, {"host": "two"}, format="json")
    assert (answer.status_code, answer.json()["name"], answer.json()["digest"]) == (200, "another", OTHER)
    assert answer.json()["decided_by"] == "ops@example.org"
    assert shown(acme) == {"one": FOREIGN, "two": None}
    assert AuditEvent.objects.filter(action="base_model.set").first().detail["before"] == BASE_DIGEST  # type: ignore[union-attr]
    before = AuditEvent.objects.count()
    assert client.put(path, {"host": "two"}, format="json").status_code == 200
    assert AuditEvent.objects.count() == before, "to say it again changes nothing"
    assert client.put(path, {"host": "nobody"}, format="json").json()["error"]["code"] == "host_not_found"
    engines.one.stop()
    away = client.put(path, {"host": "one"}, format="json")
    assert (away.status_code, away.json()["error"]["code"]) == (503, "engine_unavailable")
    assert acme.client().put(path, {"host": "two"}, format="json").status_code == 403


def test_the_command_says_what_it_did_and_what_is_wrong(engines: SimpleNamespace, capsys: Any) -> None:
    see("one")
    call_command("set_base_model", "--host", "two")
    assert OTHER in capsys.readouterr().out
    assert BaseModel.objects.get(withdrawn_at=None).digest == OTHER
    engines.two.stop()
    with pytest.raises(CommandError, match="does not answer"):
        call_command("set_base_model", "--host", "two")


def test_adapters_of_the_old_one_are_not_called_and_come_back_with_it(engines: SimpleNamespace, acme: Org) -> None:
    version = add_version(acme.tenant, "support")
    see("one", "two")
    stage_all()
    call_command("set_base_model", "--host", "two")
    assert callable_on(acme) == (), "at once, before anything has tidied up"
    stage_all()
    version.refresh_from_db()
    assert version.state == VersionState.FAILED
    assert version.error is not None and version.error["code"] == FOREIGN and "another" in version.error["message"]
    assert placed() == set()
    with pytest.raises(LorikeetError, match="trained for the base model fake-base"):
        admit(acme.principal(), "support")
    with pytest.raises(LorikeetError) as refused:
        restage_version(acting=acme.principal(), version=version)
    assert refused.value.code == FOREIGN
    events = AuditEvent.objects.count()
    stage_all()
    assert AuditEvent.objects.count() == events
    call_command("set_base_model", "--host", "one")
    stage_all()
    version.refresh_from_db()
    assert (version.state, version.error) == (VersionState.READY, None)
    assert callable_on(acme) == ("one",)


def test_the_same_model_saved_anew_keeps_its_adapters_if_the_operator_says_so(
    engines: SimpleNamespace, acme: Org
) -> None:
    version = add_version(acme.tenant, "support")
    see("one", "two")
    stage_all()
    call_command("set_base_model", "--host", "two", "--keep-adapters")
    stage_all()
    version.refresh_from_db()
    assert version.state == VersionState.READY
    assert callable_on(acme) == ("two",)
    (request,) = engines.two.engine.stage_calls
    assert request.base_digest == OTHER, "the host is asked for what it serves"
    call_command("set_base_model", "--host", "one", "--keep-adapters")
    assert BaseModel.objects.get(withdrawn_at=None).adapters_of == [OTHER]


def test_adapters_cannot_be_kept_for_a_model_of_other_shapes(names: Any) -> None:
    names("one")
    fleet_actions.record_boot("one", describe())
    wider = describe(OTHER, geometry=pb.BaseGeometry(num_layers=2, hidden_size=128))
    with pytest.raises(AdaptersDoNotFitError):
        set_base_model(actor=SYSTEM, description=wider, keep_adapters=True)
    assert BaseModel.objects.get(withdrawn_at=None).digest == BASE_DIGEST
    set_base_model(actor=SYSTEM, description=wider)
    assert BaseModel.objects.get(withdrawn_at=None).digest == OTHER


def test_the_same_files_can_be_uploaded_again_for_the_new_one(acme: Org, uploader: Uploader) -> None:
    first = uploader.ready_version(acme)
    geometry = peft_files.GEOMETRY
    sizes = {name: getattr(geometry, name) for name in pb.BaseGeometry.DESCRIPTOR.fields_by_name}
    set_base_model(actor=SYSTEM, description=describe(OTHER, geometry=pb.BaseGeometry(**sizes)))
    again = uploader.upload(acme)
    assert again.version is not None and not again.reused_version
    assert (again.version.number, again.version.digest, again.version.base_digest) == (2, first.digest, OTHER)
    once_more = uploader.upload(acme)
    assert once_more.reused_version and once_more.version == again.version


# -- what failed heals ------------------------------------------------------------------


def fail_for_good(org: Org, engines: SimpleNamespace) -> tuple[AdapterVersion, Placement]:
    version = add_version(org.tenant, "support")
    see("one")
    engines.one.engine.behaviour.stage_failures[version.digest] = "invalid_artifact"
    stage_all()
    version.refresh_from_db()
    assert version.state == VersionState.FAILED
    return version, Placement.objects.get(version=version)


def test_a_host_that_starts_anew_gets_what_failed_there(engines: SimpleNamespace, acme: Org) -> None:
    version, placement = fail_for_good(acme, engines)
    stage_all()
    placement.refresh_from_db()
    assert placement.phase == StagingPhase.FAILED, "not while nothing has changed"
    restart(engines.one, BASE_DIGEST)
    see("one")
    stage_all()
    version.refresh_from_db()
    assert version.state == VersionState.READY


def test_what_failed_is_tried_again_after_growing_pauses(
    engines: SimpleNamespace, acme: Org, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, placement = fail_for_good(acme, engines)
    events, clock = AuditEvent.objects.count(), clocks.database_time()
    pauses = []
    monkeypatch.setattr(clocks, "database_time", lambda: clock)
    for _ in range(9):
        engines.one.engine.behaviour.stage_failures[version.digest] = "invalid_artifact"
        Placement.objects.update(next_attempt_at=clock)
        stage_all()
        placement.refresh_from_db()
        assert placement.phase == StagingPhase.FAILED and placement.next_attempt_at is not None
        pauses.append(placement.next_attempt_at - clock)
    assert pauses == [timedelta(minutes=minutes) for minutes in (2, 4, 8, 16, 32, 60, 60, 60, 60)]
    assert AuditEvent.objects.count() == events, "that it failed again is no news for anybody"
    Placement.objects.update(next_attempt_at=clock)
    stage_all()
    placement.refresh_from_db()
    version.refresh_from_db()
    assert (version.state, version.error) == (VersionState.READY, None)
    assert (placement.failures, placement.next_attempt_at) == (0, None)


def test_many_failures_are_tried_a_few_at_a_time(
    engines: SimpleNamespace, acme: Org, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "MAX_RETRIED", 3)
    see("one")
    host = EngineHost.objects.get(name="one")
    versions = [add_version(acme.tenant, f"a{number}") for number in range(5)]
    failed = [Placement(version=version, host=host, phase=StagingPhase.FAILED) for version in versions]
    Placement.objects.bulk_create(failed)
    assert [actions.requeue_failed(host) for _ in range(3)] == [3, 2, 0]


# -- a host of another release --------------------------------------------------------------------


@pytest.mark.parametrize(("version", "is_used"), [(0, True), (WIRE_VERSION + 1, True), (WIRE_VERSION + 2, False)])
def test_engines_one_release_away_are_used_and_others_say_why_not(
    engines: SimpleNamespace, acme: Org, version: int, is_used: bool
) -> None:
    assert 0 in SUPPORTED, "with version 2, engines that state none are too old: change this test to WIRE_VERSION - 1"
    engines.two.stop()
    engines.two.engine.behaviour.base_digest = BASE_DIGEST
    engines.two.engine.behaviour.wire_version = version
    engines.two.start()
    see("one", "two")
    add_version(acme.tenant, "support", 1)
    stage_all()
    assert shown(acme)["two"] == (None if is_used else "unsupported_engine")
    assert {host for host, _ in placed()} == ({"one", "two"} if is_used else {"one"})
    if not is_used:
        (host,) = [host for host in acme.client().get(acme.path("hosts")).json() if host["name"] == "two"]
        assert f"version {version} of the engine protocol" in host["quarantine"]["message"]
        assert host["quarantine"]["fix"].startswith("Upgrade this side first")


def test_the_first_host_s_base_model_is_not_adopted_from_a_release_that_is_not_supported(names: Any) -> None:
    names("one")
    fleet_actions.record_boot("one", describe(wire_version=WIRE_VERSION + 2))
    assert not served_bases()
    fleet_actions.record_boot("one", describe(boot="later", wire_version=WIRE_VERSION))
    assert served_bases()
