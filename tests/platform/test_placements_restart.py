"""An operator has a host's engine end and be started anew: told, shown step by step, audited, and never done twice."""

from __future__ import annotations

from typing import Any

import pytest
from lorikeet_testing.fake_engine import FakeEngine, FakeEngineThread
from lorikeet_testing.platform_fixtures import Queue
from rest_framework.test import APIClient

from control_plane.core.config import current
from control_plane.fleet.hosts import actions
from control_plane.fleet.hosts.actions import repeat_calls
from control_plane.fleet.hosts.models import EngineHost
from control_plane.fleet.hosts.tasks import apply_restart
from control_plane.fleet.transport.blocking_client import engine_calls
from control_plane.fleet.transport.endpoint import HostEndpoint, configured_endpoints
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.tenants.roles import Role
from lora_engine.wire import engine_pb2 as pb

pytestmark = pytest.mark.django_db

HOSTS = "/api/operator/hosts"


@pytest.fixture
def engine(fake_host: FakeEngineThread, settings: Any) -> FakeEngine:
    settings.LORIKEET = current().model_copy(update={"engine_hosts": {"local": fake_host.engine.address}})
    actions.sync_hosts(configured_endpoints())
    booted(fake_host.engine)
    return fake_host.engine


def booted(engine: FakeEngine) -> None:
    with engine_calls(HostEndpoint("local", engine.address)) as calls:
        actions.record_boot("local", calls.describe())


def restart(operator: APIClient, host: str = "local", **body: Any) -> Any:
    return operator.post(f"{HOSTS}/{host}/restart", body, format="json")


def shown(operator: APIClient) -> Any:
    (host,) = operator.get(HOSTS).json()
    return host["restart"]


def heartbeat(restarting: bool) -> None:
    EngineHost.objects.update(last_status={"restarting": restarting})


def test_each_step_is_shown_until_it_is_back(
    operator: APIClient, engine: FakeEngine, fake_host: FakeEngineThread, queue: Queue, committing: Any
) -> None:
    assert shown(operator) is None
    before = engine.boot_id
    with committing():
        answer = restart(operator, wait_s=60)
    assert (answer.status_code, answer.json()) == (202, {"wait_s": 60})
    (asked,) = [call for call in queue.calls if call[0] == "hosts.apply_restart"]
    assert (shown(operator)["phase"], shown(operator)["wait_s"]) == ("asked", 60)
    row = AuditEvent.objects.get(action="host.restart")
    assert (row.detail["wait_s"], row.tenant) == (60, None)
    apply_restart(*asked[1])
    (told,) = engine.restarts
    assert told.boot_id == before and 50_000 < told.wait_ms <= 60_000
    heartbeat(restarting=True)
    assert shown(operator)["phase"] == "ending"
    fake_host.stop()
    actions.record_offline("local")
    assert shown(operator)["phase"] == "starting"
    fake_host.start()
    booted(engine)
    assert engine.boot_id != before
    assert shown(operator) is None
    apply_restart("local")  # the task comes once more
    assert len(engine.restarts) == 1


def test_an_engine_that_was_not_told_is_told_by_the_reconciler(
    operator: APIClient, engine: FakeEngine, queue: Queue, committing: Any
) -> None:
    restart(operator, wait_s=0)
    with committing():
        repeat_calls()
    assert ("hosts.apply_restart", ("local",)) in [(name, tuple(given)) for name, given in queue.calls]
    queue.calls.clear()
    heartbeat(restarting=True)
    with committing():
        repeat_calls()
    assert queue.calls == []


def test_who_cannot_be_restarted(operator: APIClient, engine: FakeEngine, globex: Any) -> None:
    assert restart(operator, "nope").json()["error"]["code"] == "host_not_found"
    assert restart(operator, wait_s=-1).status_code == 400
    actions.record_offline("local")
    answer = restart(operator)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "host_offline")
    assert not AuditEvent.objects.filter(action="host.restart").exists()
    assert globex.client(Role.OWNER).post(f"{HOSTS}/local/restart", {}, format="json").status_code == 403


def test_operators_see_why_an_engine_was_started_anew(operator: APIClient, engine: FakeEngine, acme: Any) -> None:
    (host,) = operator.get(HOSTS).json()
    assert host["last_end"] is None
    engine.boot_id = "next"
    for unix_time, at in ((1_700_000_000.0, "2023-11-14T22:13:20+00:00"), (0.0, None)):
        engine.last_end = pb.LastEnd(reason="rank 1 (process 7) ended with status -9", unix_time=unix_time)
        booted(engine)
        (host,) = operator.get(HOSTS).json()
        assert host["last_end"] == {"reason": "rank 1 (process 7) ended with status -9", "at": at}
    (of_tenant,) = acme.client(Role.VIEWER).get("/api/tenants/acme/hosts").json()
    assert "last_end" not in of_tenant
    actions.record_offline("local")
    (host,) = operator.get(HOSTS).json()
    assert host["last_end"] is None, "why the one that is gone now ended, nobody knows yet"
