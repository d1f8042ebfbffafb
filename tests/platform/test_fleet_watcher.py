"""Following hosts: boots, heartbeats, absence, and one leader among many."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from lorikeet_testing.fake_engine import FakeEngine

from control_plane.core.db import run_db
from control_plane.core.metrics.registry import INSTALLATION
from control_plane.fleet.hosts.actions import record_status
from control_plane.fleet.hosts.api.queries import clock_ahead_s
from control_plane.fleet.hosts.host_clock import KEPT, HostClock
from control_plane.fleet.hosts.host_status import status_json
from control_plane.fleet.hosts.leader_election import FileLease, Lease, RedisLease
from control_plane.fleet.hosts.models import EngineHost
from control_plane.fleet.hosts.watcher import FleetWatcher
from control_plane.fleet.transport.endpoint import HostEndpoint
from lora_engine.wire import engine_pb2 as pb

REDIS_URL = os.environ.get("LORIKEET_TEST_REDIS_URL", "")


@pytest.fixture(params=["file", pytest.param("redis", marks=pytest.mark.services)])
def make_lease(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Lease]:
    name = uuid.uuid4().hex
    if request.param == "file":
        return lambda: FileLease(tmp_path / name)
    return lambda: RedisLease(REDIS_URL, name, ttl_s=60)


def test_one_leads_until_it_steps_back(make_lease: Callable[[], Lease]) -> None:
    first, second = make_lease(), make_lease()
    assert first.hold() and first.hold()
    assert not second.hold()
    first.release()
    assert second.hold()
    assert not first.hold()
    second.release()


@pytest.mark.services
async def test_a_leader_that_is_gone_is_replaced() -> None:
    name = uuid.uuid4().hex
    first, second = RedisLease(REDIS_URL, name, ttl_s=0.2), RedisLease(REDIS_URL, name, ttl_s=60)
    assert first.hold()
    await asyncio.sleep(0.4)
    assert second.hold()
    assert not first.hold()
    first.release()
    assert second.hold()
    second.release()


@pytest_asyncio.fixture
async def watching(loop_engine: FakeEngine, tmp_path: Path) -> AsyncIterator[None]:
    watcher = FleetWatcher(
        lambda: {"local": HostEndpoint("local", loop_engine.address)}, FileLease(tmp_path / "l"), interval_s=0.1
    )
    task = asyncio.create_task(watcher.run())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def host_when(condition: Callable[[EngineHost], Any]) -> EngineHost:
    async with asyncio.timeout(30):
        while True:
            host = await run_db(EngineHost.objects.filter(name="local").first)
            if host is not None and condition(host):
                return host
            await asyncio.sleep(0.05)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("watching")
async def test_boots_heartbeats_and_absence(loop_engine: FakeEngine) -> None:
    host = await host_when(lambda host: host.state == "online" and host.last_status)
    assert host.boot_id == loop_engine.boot_id
    assert host.last_status["pool"]["total"] == 1000
    assert host.description["base_model"] == "fake-base"
    loop_engine.draining = True
    await host_when(lambda host: host.state == "draining")
    await loop_engine.stop()
    await host_when(lambda host: host.state == "offline")
    await loop_engine.start()
    again = await host_when(lambda host: host.state == "online")
    assert again.boot_id == loop_engine.boot_id != host.boot_id


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("watching")
async def test_the_difference_of_a_host_s_clock_is_measured_and_shown(loop_engine: FakeEngine) -> None:
    def ahead_s(host: EngineHost) -> float:
        return float(host.last_status.get("clock_ahead_s") or 0.0)

    await host_when(lambda host: "clock_ahead_s" in host.last_status and abs(ahead_s(host)) < 1)
    loop_engine.clock_ahead_s = 90.0
    host = await host_when(lambda host: abs(ahead_s(host) - 90) < 1)
    assert clock_ahead_s(host) == ahead_s(host)
    shown = await run_db(INSTALLATION.get_sample_value, "lorikeet_host_clock_ahead_seconds", {"host": "local"})
    assert shown is not None and abs(shown - 90) < 1
    loop_engine.clock_ahead_s = -90.0
    await host_when(lambda host: abs(ahead_s(host) + 90) < 1)
    await loop_engine.stop()
    gone = await host_when(lambda host: host.state == "offline")
    assert clock_ahead_s(gone) is None, "nobody knows it now"


def test_delays_of_heartbeats_are_no_difference(caplog: pytest.LogCaptureFixture) -> None:
    clock = HostClock("gpu1")
    with caplog.at_level("INFO"):
        for number, delay_s in enumerate((0.01, 3.0, 1.5, 5.0, 0.02)):
            assert abs(clock.observe(number, number + delay_s)) < 0.02
        assert not caplog.records
        for number in range(2 * KEPT):  # a step back, which is known when the heartbeats before it are forgotten
            ahead = clock.observe(100 + number - 7.5, 100 + number)
        assert ahead == -7.5
        (warning,) = caplog.records
        assert "gpu1 is 7.5 s behind" in warning.getMessage()
        clock.forget()
        assert clock.observe(200, 200.01) == pytest.approx(-0.01)
        assert "agrees" in caplog.records[-1].getMessage()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("watching")
async def test_a_watcher_without_errors_logs_none(caplog: pytest.LogCaptureFixture) -> None:
    await host_when(lambda host: host.state == "online")
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.django_db(transaction=True)
async def test_only_the_leader_follows(loop_engine: FakeEngine, tmp_path: Path) -> None:
    taken = FileLease(tmp_path / "l")
    assert taken.hold()
    endpoints = {"local": HostEndpoint("local", loop_engine.address)}
    task = asyncio.create_task(FleetWatcher(lambda: endpoints, FileLease(tmp_path / "l"), interval_s=0.1).run())
    await asyncio.sleep(0.5)
    assert not await run_db(EngineHost.objects.filter(name="local").exists)
    taken.release()
    await host_when(lambda host: host.state == "online")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_heartbeat_says_what_each_tenant_is_owed_and_why_it_waits() -> None:
    share = pb.TenantShare(tenant="t", weight=2, waiting=3, owed=0.5, received=0.25, reason="own_quota")
    (shown,) = status_json(pb.HostStatus(tenants=[share]))["tenants"]
    assert shown == {"tenant": "t", "weight": 2, "waiting": 3, "running": 0, "counter": 0, "owed": 0.5,
                     "received": 0.25, "reason": "own_quota"}  # fmt: skip


TIERS = pb.AdapterResidency


def on_host(host: EngineHost) -> dict[str, tuple[str, int]]:
    return {row.digest: (row.tier, row.running) for row in host.adapters.all()}


def written(status: pb.HostStatus, whole: dict[str, pb.AdapterResidency] | None = None) -> list[str]:
    """The statements about adapters by which a heartbeat is stored."""
    with CaptureQueriesContext(connection) as queries:
        record_status("local", status, whole)
    return [query["sql"] for query in queries if "hosts_hostadapter" in query["sql"]]


@pytest.mark.django_db
def test_of_a_host_s_adapters_what_changed_is_written(host: EngineHost) -> None:
    adapters = [TIERS(digest=f"sha256:{n}", tier=TIERS.DISK, bytes=10, rank=8) for n in range(1500)]
    written(pb.HostStatus(boot_id="b", adapters=adapters))
    assert host.adapters.count() == 1500
    assert written(pb.HostStatus(boot_id="b", adapter_changes=True)) == []
    nearer = TIERS(digest="sha256:7", tier=TIERS.DEVICE, running=3, bytes=10, rank=8)
    came = TIERS(digest="sha256:new", tier=TIERS.HOST, bytes=20)
    changes = pb.HostStatus(boot_id="b", adapter_changes=True, adapters=[nearer, came], adapters_gone=["sha256:8"])
    statements = written(changes)
    assert len(statements) == 2 and sum(map(len, statements)) < 2000, "two rows, and not the list"
    now = on_host(host)
    assert (now["sha256:7"], now["sha256:new"], "sha256:8" in now) == (("device", 3), ("host", 0), False)
    assert len(now) == 1500
    written(changes)  # as two watchers do for a moment, when another one begins to lead
    assert on_host(host) == now


@pytest.mark.django_db
def test_what_another_watcher_wrote_late_is_mended(host: EngineHost) -> None:
    kept = TIERS(digest="kept", tier=TIERS.HOST, bytes=10)
    for digest, tier in (("kept", "disk"), ("forgotten", "host")):
        host.adapters.create(digest=digest, tier=tier, running=0, bytes=10, rank=0)
    status = pb.HostStatus(boot_id="b", adapter_changes=True)
    written(status)
    assert on_host(host) == {"kept": ("disk", 0), "forgotten": ("host", 0)}
    written(status, {"kept": kept})
    assert on_host(host) == {"kept": ("host", 0)}
    assert len(written(status, {"kept": kept})) == 1, "which only reads"
    host.refresh_from_db()
    assert host.adapters_boot_id == "b"


@pytest.mark.django_db
def test_a_host_that_was_revoked_writes_nothing(host: EngineHost) -> None:
    EngineHost.objects.update(revoked_at=timezone.now())
    assert written(pb.HostStatus(boot_id="b", adapters=[TIERS(digest="d", tier=TIERS.HOST)])) == []
