"""What a request would wait for its adapter is told by tier, from what loads took; each tenant of its own."""

from __future__ import annotations

from typing import Any

import pytest
from lorikeet_testing.seed import add_version

from control_plane.fleet.hosts.actions import record_status
from control_plane.fleet.hosts.models import EngineHost
from control_plane.identity.tenants.roles import Role
from lora_engine.wire import engine_pb2 as pb

pytestmark = pytest.mark.django_db

MB = 1_000_000


def status(digest: str, *, download: int) -> pb.HostStatus:
    return pb.HostStatus(
        adapters=[pb.AdapterResidency(digest=digest, tier=pb.AdapterResidency.DISK, bytes=20 * MB, rank=8)],
        load_times=pb.LoadTimes(
            to_device=pb.LoadTime(loads=3, fixed_s=0.001, seconds_per_byte=1e-9),
            from_disk=pb.LoadTime(loads=2, fixed_s=0.002, seconds_per_byte=1e-8),
            download=pb.LoadTime(loads=download, fixed_s=0.1, seconds_per_byte=1e-7),
        ),
    )


def tiers(acme: Any, version: Any) -> Any:
    answer = acme.client(Role.VIEWER).get(acme.path(f"adapters/{version.adapter.name}/versions/{version.number}/tiers"))
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_each_tier_adds_its_load(acme: Any, host: EngineHost) -> None:
    version = add_version(acme.tenant, "support")
    record_status(host.name, status(version.digest, download=1))
    (found,) = tiers(acme, version)
    assert (found["host"], found["tier"], found["cold_start_ms"]) == (host.name, "disk", 223.0)
    assert found["by_tier"] == {"device": 0.0, "host": 21.0, "disk": 223.0, "store": 2323.0}
    (shown,) = acme.client(Role.VIEWER).get(acme.path("hosts")).json()
    assert shown["adapters"][0]["cold_start_ms"] == 223.0
    assert shown["load_times"][1] == {"step": "from_disk", "loads": 2, "fixed_ms": 2.0, "bytes_per_second": 100 * MB}


def test_a_host_shows_where_the_experts_of_adapters_lie(acme: Any, operator: Any, host: EngineHost) -> None:
    (before,) = acme.client(Role.VIEWER).get(acme.path("hosts")).json()
    assert before["experts"] is None, "as with a model without experts, or an engine that was not heard yet"
    experts = pb.ResidentExperts(resident=620, total=1000, recent_pairs=1 << 40, recent_host_pairs=96, setting="auto")
    reported = status("sha256:another", download=0)
    reported.experts.CopyFrom(experts)
    record_status(host.name, reported)
    shown = acme.client(Role.VIEWER).get(acme.path("hosts")).json()[0]["experts"]
    assert (shown["resident"], shown["total"], shown["recent_pairs"]) == (620, 1000, 1 << 40)
    assert (shown["recent_host_pairs"], shown["setting"]) == (96, "auto")
    assert operator.get("/api/operator/hosts").json()[0]["experts"] == shown


def test_a_version_and_a_host_show_how_many_of_its_experts_are_in_the_pool(
    acme: Any, operator: Any, host: EngineHost
) -> None:
    version = add_version(acme.tenant, "support")
    reported = status(version.digest, download=0)
    record_status(host.name, reported)
    assert tiers(acme, version)[0]["experts"] is None
    here = reported.adapters[0]
    here.tier, here.experts_resident, here.experts_total = pb.AdapterResidency.DEVICE, 62, 128
    for resident in (62, 40):
        here.experts_resident = resident
        record_status(host.name, reported)
        expected = {"resident": resident, "total": 128}
        assert tiers(acme, version)[0]["experts"] == expected
        for shown in (acme.client(Role.VIEWER).get(acme.path("hosts")), operator.get("/api/operator/hosts")):
            assert shown.json()[0]["adapters"][0]["experts"] == expected
    here.tier, here.experts_resident, here.experts_total = pb.AdapterResidency.HOST, 0, 0
    record_status(host.name, reported)
    assert tiers(acme, version)[0]["experts"] is None


def test_what_was_never_measured_is_not_made_up(acme: Any, host: EngineHost) -> None:
    version = add_version(acme.tenant, "support")
    record_status(host.name, status("sha256:another", download=0))
    (found,) = tiers(acme, version)
    assert (found["tier"], found["cold_start_ms"], found["by_tier"]["store"]) == ("store", None, None)
    assert found["by_tier"]["disk"] is not None
    EngineHost.objects.update(last_status={})  # of an engine that tells no load times
    (found,) = tiers(acme, version)
    assert found["by_tier"] == {"device": 0.0, "host": None, "disk": None, "store": None}


def test_anothers_version_is_not_found(acme: Any, globex: Any, host: EngineHost) -> None:
    foreign = add_version(globex.tenant, "secret")
    path = acme.path(f"adapters/{foreign.adapter.name}/versions/1/tiers")
    assert acme.client(Role.VIEWER).get(path).status_code == 404
