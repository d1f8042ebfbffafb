"""Where adapters are placed by what they take of a device: the plan, how it is carried out, and loading on demand."""

from __future__ import annotations

import random
import time
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from lorikeet_testing.platform_fixtures import Org

from control_plane.adapters.registry.models import AdapterVersion
from control_plane.billing.usage.models import HourlyUsage, Series
from control_plane.core.config import current
from control_plane.fleet.base_models.base_model import ServedBase, served_bases
from control_plane.fleet.hosts.models import EngineHost, HostState, StagingPhase
from control_plane.fleet.placements import actions, demand, tasks
from control_plane.fleet.placements.demand_policy import ENOUGH, Demand, HostRoom, plan
from control_plane.fleet.placements.models import Placement
from control_plane.gateway.dispatch.admission import AdapterLoadingError, admit


def asked(version: str, load: float = 0.0, *, size: int = 10, rank: int = 8, on: tuple[int, ...] = ()) -> Demand:
    return Demand(version, load, size, rank, frozenset(on))


def rooms(count: int = 4, size: int = 1000) -> list[HostRoom]:
    return [HostRoom(host, size) for host in range(count)]


def test_a_popular_one_is_on_several_hosts_and_the_others_on_one() -> None:
    found = plan(rooms(), [asked("hot", 0.9), asked("warm", 0.05), asked("cold")])
    assert len(found["hot"]) == 4, "0.9 of a device bears bursts with all of them only"
    assert [len(found[name]) for name in ("warm", "cold")] == [1, 1]


def test_one_host_is_enough_where_bursts_fit() -> None:
    found = plan(rooms(), [asked(f"a{number}", 0.05) for number in range(4)])
    assert {len(on) for on in found.values()} == {1}
    assert len(set().union(*found.values())) == 4, "and the load is spread"
    assert ENOUGH < 0.95 / 0.05


def test_what_finds_no_room_is_in_the_store_only_unless_it_is_called() -> None:
    found = plan(rooms(2, 25), [asked("called", 0.01, size=30), *(asked(f"c{number}") for number in range(6))])
    assert len(found["called"]) == 1, "the engine keeps it on its disk"
    assert sum(len(found[f"c{number}"]) for number in range(6)) == 2, "beside it, one host's"


def test_room_bounds_copies_too() -> None:
    found = plan([HostRoom(0, 100), HostRoom(1, 5), HostRoom(2, 100)], [asked("hot", 0.9)])
    assert found["hot"] == {0, 2}


@pytest.mark.parametrize("load", [0.0, 1e-5])
def test_what_is_called_little_takes_no_room_from_copies_of_what_is_popular(load: float) -> None:
    rare = [asked(f"c{number}", load, on=(number % 3,)) for number in range(9)]
    found = plan(rooms(3, 30), [asked("hot", 0.5), asked("following", 0.5), *rare])
    copies = len(found["hot"]) + len(found["following"])
    assert copies >= 5
    assert sum(len(found[each.version]) for each in rare) == (9 if load else 9 - copies), "what is called has a host"


def test_many_that_are_called_little_count_together() -> None:
    """Half of each host is theirs, so that the popular one needs all of them."""
    few = plan(rooms(), [asked("hot", 0.3)])
    many = plan(rooms(size=10_000), [asked("hot", 0.3), *(asked(f"s{number}", 0.01) for number in range(200))])
    assert len(few["hot"]) < len(many["hot"]) == 4


def test_ranks_are_kept_apart_where_load_allows() -> None:
    small = [asked(f"s{number}", 0.05, rank=8) for number in range(4)]
    large = [asked(f"l{number}", 0.05, rank=128) for number in range(4)]
    found = plan(rooms(2), [*small, *large])
    by_host = [{name[0] for name, on in found.items() if host in on} for host in range(2)]
    assert sorted(map(sorted, by_host)) == [["l"], ["s"]]


def test_nothing_moves_for_little() -> None:
    draw = random.Random(7)
    demands = [asked(f"a{number}", draw.random() * 0.08, rank=draw.choice((8, 16, 64))) for number in range(60)]
    first = plan(rooms(), demands)
    changed = [
        Demand(each.version, each.load * draw.uniform(0.9, 1.1), each.bytes, each.rank, first[each.version])
        for each in demands
    ]
    second = plan(rooms(), changed)
    moved = sum(not first[each.version] & second[each.version] for each in demands)
    assert moved <= 3, f"{moved} of 60 left their hosts for a change of a tenth"


def test_without_hosts_nothing_is_planned_and_with_many_it_is_quick() -> None:
    assert plan([], [asked("a", 0.5)]) == {"a": frozenset()}
    draw = random.Random(1)
    many = [asked(f"a{number}", draw.paretovariate(1.2) * 5e-4, rank=draw.choice((8, 64))) for number in range(4_000)]
    began = time.process_time()
    found = plan(rooms(32, 10_000), many)
    assert time.process_time() - began < 5
    assert all(found.values())


# -- carried out -----------------------------------------------------------------------


@pytest.fixture
def fleet(host: EngineHost, settings: Any) -> list[EngineHost]:
    """Three hosts of the base model, placed by demand."""
    settings.LORIKEET = current().model_copy(update={"placement": "demand"})
    for name in ("second", "third"):
        description = {**host.description, "host_arena_bytes": 1 << 30}
        EngineHost.objects.create(
            name=name, address=f"unix:/{name}", boot_id=f"boot-{name}", description=description, credential=name
        )
    EngineHost.objects.update(state=HostState.ONLINE)
    return list(EngineHost.objects.order_by("name"))


def use(version: AdapterVersion, device_s: float, start: datetime | None = None) -> None:
    start = (start or timezone.now() - timedelta(hours=1)).replace(minute=0, second=0, microsecond=0)
    row: dict[str, Any] = {"tenant": version.tenant, "adapter": version.adapter, "version": version}
    series, _ = Series.objects.get_or_create(**row, outcome="finished", identity=str(version.pk))
    figures = dict.fromkeys(("prompt_tokens", "cached_prompt_tokens", "completion_tokens", "queue_ms"), 1)
    HourlyUsage.objects.create(
        tenant=version.tenant, series=series, start=start, requests=10, device_us=int(device_s * 1e6),
        adapter_load_ms=0, **figures,
    )  # fmt: skip


def stage_all() -> None:
    """As if hosts took what they should have."""
    for placement in Placement.objects.exclude(phase=StagingPhase.READY).select_related("host"):
        Placement.objects.filter(pk=placement.pk).update(phase=StagingPhase.READY, boot_id=placement.host.boot_id)


def base() -> ServedBase:
    found = served_bases().only
    assert found is not None
    return found


def hosts_of(version: AdapterVersion) -> set[str]:
    return set(Placement.objects.filter(version=version).values_list("host__name", flat=True))


@pytest.mark.django_db
def test_copies_follow_demand_and_are_taken_away_late(fleet: list[EngineHost], acme: Org, ready_version: Any) -> None:
    hot, cold = ready_version(acme, "hot"), ready_version(acme, "cold", seed=1)
    stage_all()
    assert len(hosts_of(hot)) == len(hosts_of(cold)) == 1, "one host until it is known what is called"
    use(hot, 3000)
    assert demand.place_by_demand(base()) == (2, 0)
    stage_all()
    assert len(hosts_of(hot)) == 3 and len(hosts_of(cold)) == 1
    assert demand.place_by_demand(base()) == (0, 0), "nothing else to do"
    later = timezone.now() + timedelta(hours=8)
    assert demand.place_by_demand(base(), later) == (0, 0)
    assert Placement.objects.filter(version=hot, unneeded_since=None).count() == 1
    assert demand.place_by_demand(base(), later + timedelta(minutes=29)) == (0, 0)
    use(hot, 3000, later)
    assert demand.place_by_demand(base(), later + timedelta(minutes=29)) == (0, 0)
    assert not Placement.objects.exclude(unneeded_since=None).exists(), "wanted again"
    quiet = later + timedelta(hours=8)
    demand.place_by_demand(base(), quiet)
    assert demand.place_by_demand(base(), quiet + timedelta(minutes=31)) == (0, 2)
    assert len(hosts_of(hot)) == 1


@pytest.mark.django_db
def test_a_new_version_gets_the_hosts_of_the_live_one_before_it_is_live(
    fleet: list[EngineHost], acme: Org, ready_version: Any
) -> None:
    live = ready_version(acme, "hot")
    use(live, 3000)
    demand.place_by_demand(base())
    following = ready_version(acme, "hot", seed=1)
    assert len(hosts_of(following)) == 1
    demand.place_by_demand(base())
    assert len(hosts_of(following)) > 1
    assert len(hosts_of(live)) == 3


@pytest.mark.django_db
def test_what_is_in_the_store_only_is_brought_to_a_host_by_a_request(
    fleet: list[EngineHost], acme: Org, ready_version: Any
) -> None:
    version = ready_version(acme, "cold")
    Placement.objects.all().delete()
    tasks.reconcile()
    assert hosts_of(version) == set(), "nobody calls it"
    with pytest.raises(AdapterLoadingError) as loading:
        admit(acme.principal(), "cold")
    assert (loading.value.code, loading.value.status) == ("adapter_loading", 503)
    (name,) = hosts_of(version)
    with pytest.raises(AdapterLoadingError):
        admit(acme.principal(), "cold")
    assert hosts_of(version) == {name}, "once"
    stage_all()
    assert admit(acme.principal(), "cold").hosts == (name,)
    EngineHost.objects.filter(name=name).update(state=HostState.OFFLINE)
    with pytest.raises(AdapterLoadingError):
        admit(acme.principal(), "cold")
    assert len(hosts_of(version)) == 2, "another host than the one that is away"
    EngineHost.objects.update(state=HostState.OFFLINE)
    assert admit(acme.principal(), "cold").hosts == (), "nobody could"


@pytest.mark.django_db
def test_parts_of_a_combination_are_brought_together(fleet: list[EngineHost], acme: Org, ready_version: Any) -> None:
    one, two = ready_version(acme, "one"), ready_version(acme, "two", seed=1)
    stage_all()
    assert hosts_of(one) != hosts_of(two), "on the hosts with least"
    with pytest.raises(AdapterLoadingError):
        admit(acme.principal(), "one+two")
    stage_all()
    assert len(admit(acme.principal(), "one+two").hosts) == 1


@pytest.mark.django_db
def test_the_last_copy_that_answers_stays_until_another_does(
    fleet: list[EngineHost], acme: Org, ready_version: Any
) -> None:
    version = ready_version(acme, "hot")
    stage_all()
    placement = Placement.objects.get(version=version)
    others = [host for host in fleet if host.pk != placement.host_id]
    actions.place_version(version, others[:1])
    waiting = Placement.objects.get(version=version, host=others[0])
    long_ago = timezone.now() - timedelta(hours=2)
    Placement.objects.filter(pk=placement.pk).update(unneeded_since=long_ago)
    placement.refresh_from_db()
    assert demand._take_away([placement], [waiting], timezone.now()) == 0
    stage_all()
    waiting.refresh_from_db()
    assert demand._take_away([placement], [waiting], timezone.now()) == 1
