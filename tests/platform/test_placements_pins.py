"""Pinned adapters: who may pin what, what hosts are told, and that both outlive restarts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone
from lorikeet_testing.concurrent import while_another_commits
from lorikeet_testing.fake_engine import FakeEngine, FakeEngineThread
from lorikeet_testing.pinning import boot, enrolled, ready, resize, the_host
from lorikeet_testing.platform_fixtures import Queue
from lorikeet_testing.seed import add_version

from control_plane.adapters.registry.archiving import archive_adapter
from control_plane.adapters.registry.models import Adapter
from control_plane.adapters.registry.queries import get_adapter
from control_plane.adapters.registry.versions import promote_version
from control_plane.billing.limits.actions import set_tenant_limits
from control_plane.billing.limits.values import Limits
from control_plane.fleet.placements import actions, pins, tasks
from control_plane.fleet.placements.models import Placement
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.tenants.roles import Role

pytestmark = pytest.mark.django_db


@pytest.fixture
def engine(fake_host: FakeEngineThread, settings: Any) -> FakeEngine:
    return enrolled(fake_host, settings)


def allow(org: Any, adapters: float) -> int:
    """A quota for so many adapters; what one takes."""
    size = pins.device_bytes(Placement.objects.select_related("host", "version").earliest("created_at"))
    limits = Limits(pinned_bytes=int(adapters * size))
    set_tenant_limits(actor=SYSTEM, tenant=org.tenant, limits=limits)
    return size


def put(org: Any, name: str, role: Role = Role.DEVELOPER) -> Any:
    return org.client(role).put(org.path(f"adapters/{name}/pin"))


def state(org: Any, name: str) -> Any:
    return org.client(Role.VIEWER).get(org.path(f"adapters/{name}/pin")).json()


def refused(answer: Any, status: int) -> str:
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["message"] and error["fix"]
    code: str = error["code"]
    return code


def tell(name: str = "local") -> None:
    tasks.apply_pins(name)


def test_a_pin_is_refused_without_a_quota_and_beyond_it(acme: Any, engine: FakeEngine) -> None:
    first, second = ready(acme, "first"), ready(acme, "second")
    assert refused(put(acme, "first"), 409) == "pins_not_allowed"
    allow(acme, 0)
    assert refused(put(acme, "first"), 409) == "pins_not_allowed"
    size = allow(acme, 1.5)
    answer = put(acme, "first")
    assert answer.status_code == 200 and answer.json()["pinned_at"]
    assert (answer.json()["bytes"], answer.json()["used_bytes"]) == (size, size)
    assert answer.json()["hosts"] == [{"host": "local", "bytes": size, "pinned": False}]
    assert refused(put(acme, "second"), 409) == "pin_limit_reached"
    assert put(acme, "first").status_code == 200, "once more changes nothing"
    tell()
    assert engine.pinned == [first.digest] and second.digest not in engine.pinned
    assert state(acme, "first")["hosts"] == [{"host": "local", "bytes": size, "pinned": True}]
    assert acme.client(Role.DEVELOPER).delete(acme.path("adapters/first/pin")).status_code == 204
    tell()
    assert engine.pinned == [] and not Placement.objects.filter(pinned=True).exists()
    assert put(acme, "second").status_code == 200
    told = AuditEvent.objects.filter(action__endswith="pin").order_by("id")
    assert list(told.values_list("action", "target_label")) == [
        ("adapter.pin", "first"),
        ("adapter.unpin", "first"),
        ("adapter.pin", "second"),
    ]


def test_only_who_may_change_adapters_pins_them_and_only_own_ones(acme: Any, globex: Any, engine: FakeEngine) -> None:
    ready(acme, "support")
    allow(acme, 3)
    allow(globex, 3)
    assert put(acme, "support", Role.VIEWER).status_code == 403
    assert refused(put(globex, "support"), 404) == "adapter_not_found"
    assert globex.client().get(acme.path("adapters/support/pin")).status_code == 404
    assert not Adapter.objects.filter(pinned_at__isnull=False).exists()


def test_nothing_is_pinned_that_no_host_has(acme: Any, engine: FakeEngine) -> None:
    ready(acme, "support")
    allow(acme, 3)
    add_version(acme.tenant, "waiting")
    assert refused(put(acme, "waiting"), 409) == "no_live_version"
    assert state(acme, "waiting") == {
        "pinned_at": None,
        "bytes": None,
        "used_bytes": 0,
        "limit_bytes": 3 * pins.device_bytes(Placement.objects.select_related("host", "version").get()),
        "hosts": [],
    }


def test_all_tenants_together_pin_a_quarter_of_a_pool(acme: Any, globex: Any, engine: FakeEngine) -> None:
    mine, other = ready(acme, "support"), ready(globex, "support")
    pages = Placement.objects.get(version=mine).pool_pages
    allow(acme, 5)
    allow(globex, 5)
    resize(4 * (2 * pages) - 1)
    assert put(acme, "support").status_code == 200
    assert refused(put(globex, "support"), 409) == "pins_full"
    resize(4 * (2 * pages))
    assert put(globex, "support").status_code == 200
    tell()
    assert engine.pinned == [mine.digest, other.digest]


def test_a_pin_follows_what_is_live(
    acme: Any, engine: FakeEngine, queue: Queue, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    one = ready(acme, "support")
    two = ready(acme, "support", 2)
    allow(acme, 1)
    with django_capture_on_commit_callbacks(execute=True):
        put(acme, "support")
    assert ("placements.apply_pins", ("local",)) in queue.calls
    tell()
    assert engine.pinned == [one.digest]
    queue.calls.clear()
    with django_capture_on_commit_callbacks(execute=True):
        promote_version(acting=acme.principal(), version=two)
    assert ("placements.apply_pins", ("local",)) in queue.calls
    tell()
    assert engine.pinned == [two.digest]
    assert list(Placement.objects.filter(pinned=True).values_list("version__number", flat=True)) == [2]


def test_the_oldest_pins_stay_when_a_quota_shrinks_and_none_of_who_may_not_call(acme: Any, engine: FakeEngine) -> None:
    first, second = ready(acme, "zebra"), ready(acme, "ant")
    allow(acme, 2)
    put(acme, "zebra")
    put(acme, "ant")
    tell()
    assert engine.pinned == [first.digest, second.digest]
    allow(acme, 1)
    tell()
    assert engine.pinned == [first.digest]
    assert {name: [host["pinned"] for host in state(acme, name)["hosts"]] for name in ("zebra", "ant")} == {
        "zebra": [True],
        "ant": [False],
    }
    archive_adapter(acting=acme.principal(), adapter=get_adapter(acme.tenant, "zebra").adapter)
    tell()
    assert engine.pinned == [second.digest]
    acme.tenant.suspended_at = timezone.now()
    acme.tenant.save()
    tell()
    assert engine.pinned == []


def test_pins_are_told_again_to_an_engine_that_restarted(
    acme: Any,
    engine: FakeEngine,
    fake_host: FakeEngineThread,
    queue: Queue,
    django_capture_on_commit_callbacks: Callable[..., Any],
) -> None:
    version = ready(acme, "support")
    allow(acme, 1)
    put(acme, "support")
    tell()
    fake_host.stop()
    tell()  # away: no error, and the wish stays
    fake_host.start()
    engine.pinned = []
    boot(engine)
    actions.requeue_after_boot(the_host())
    assert state(acme, "support")["hosts"] == [], "nobody says that it is kept by an engine that has forgotten it"
    with django_capture_on_commit_callbacks(execute=True):
        tasks.stage_next()
    assert ("placements.apply_pins", ("local",)) in queue.calls, "with its staging"
    queue.calls.clear()
    with django_capture_on_commit_callbacks(execute=True):
        tasks.reconcile()
    assert ("placements.apply_pins", ("local",)) in queue.calls, "and by the reconciler, should that be lost"
    tell()
    assert engine.pinned == [version.digest]
    assert [host["pinned"] for host in state(acme, "support")["hosts"]] == [True]


def test_hosts_without_pins_are_not_asked(acme: Any, engine: FakeEngine) -> None:
    ready(acme, "support")
    assert not pins.needs_pins(the_host())


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_of_two_pins_at_once_one_sees_the_other(acme: Any, engine: FakeEngine) -> None:
    ready(acme, "first")
    ready(acme, "second")
    allow(acme, 1)
    adapters = {name: get_adapter(acme.tenant, name).adapter for name in ("first", "second")}

    def pin_second() -> str:
        with pytest.raises(pins.PinError) as refusal:
            pins.pin_adapter(acting=acme.principal(), adapter=adapters["second"])
        return refusal.value.code

    code = while_another_commits(
        lambda: pins.pin_adapter(acting=acme.principal(), adapter=adapters["first"]), pin_second
    )
    assert code == "pin_limit_reached"
