"""How far apart tenants were served: the widest of each minute and hour, beside its bound, for operators alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from control_plane.fleet.hosts import actions, service_gaps
from control_plane.fleet.hosts.models import EngineHost, ServiceGap
from control_plane.identity.tenants.roles import Role
from lora_engine.wire import engine_pb2 as pb

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]


def gap(acme: Any, globex: Any, of_bound: float) -> pb.ServiceGap:
    ahead, behind = str(acme.tenant.pk), str(globex.tenant.pk)
    return pb.ServiceGap(gap=1000 * of_bound, bound=1000, ahead=ahead, behind=behind)


def shown(operator: Any, **query: Any) -> Any:
    answer = operator.get("/api/operator/fairness", query)
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_the_widest_of_each_step_is_kept(acme: Any, globex: Any, host: EngineHost, operator: Any) -> None:
    hour = timezone.now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    for minute, of_bound in ((5, 0.2), (5, 0.4), (5, 0.1), (9, 0.3)):
        service_gaps.record(host.name, gap(acme, globex, of_bound), hour + timedelta(minutes=minute))
    assert sorted(ServiceGap.objects.values_list("step", "share")) == [(1, 0.3), (1, 0.4), (60, 0.4)]
    (found,) = shown(operator, range="6h")["hosts"]
    (widest,) = [point["widest"] for point in found["points"] if point["widest"]][:1]
    assert (found["name"], found["now"]) == (host.name, None)
    assert widest == {"gap": 400.0, "bound": 1000.0, "share": 0.4, "ahead": "acme", "behind": "globex"}
    (by_hour,) = shown(operator, range="30d")["hosts"]
    assert [point["widest"]["share"] for point in by_hour["points"] if point["widest"]] == [0.4]


def test_heartbeats_tell_it_and_old_ones_go(acme: Any, globex: Any, host: EngineHost, operator: Any) -> None:
    old = timezone.now() - timedelta(days=3)
    service_gaps.record(host.name, gap(acme, globex, 0.9), old)
    actions.record_status(host.name, pb.HostStatus(boot_id="b", service_gap=gap(acme, globex, 0.25)))
    (found,) = shown(operator)["hosts"]
    assert (found["now"]["share"], found["now"]["ahead"]) == (0.25, "acme")
    assert sorted(ServiceGap.objects.values_list("step", "share")) == [(1, 0.25), (60, 0.25), (60, 0.9)]
    actions.record_status(host.name, pb.HostStatus(boot_id="b"))
    assert shown(operator)["hosts"][0]["now"] is None
    assert shown(operator)["hosts"][0]["points"][-1]["widest"]["share"] == 0.25


def test_tenants_are_not_told(acme: Any, host: EngineHost) -> None:
    assert acme.client(Role.OWNER).get("/api/operator/fairness").status_code == 403
