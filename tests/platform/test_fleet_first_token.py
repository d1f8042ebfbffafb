"""Which host a request goes to: where its first token is predicted soonest."""

from __future__ import annotations

import pytest

from control_plane.fleet.routing.connections import Fleet
from control_plane.fleet.routing.first_token import FirstTokenPrediction
from control_plane.fleet.routing.router import (
    MAX_COMPARED,
    ROUTING_POLICIES,
    HostLoad,
    SoonestFirstToken,
    compared,
    make_policy,
)
from control_plane.fleet.transport.endpoint import HostEndpoint
from lora_engine.wire import engine_pb2 as pb

DEVICE, HOST, DISK = pb.AdapterResidency.DEVICE, pb.AdapterResidency.HOST, pb.AdapterResidency.DISK


def status(seconds: float = 0.1, token: float = 0.001, **tenants: float) -> pb.HostStatus:
    return pb.HostStatus(
        first_token=pb.FirstTokenForecast(seconds=seconds, prompt_token_s=token),
        tenants=[pb.TenantShare(tenant=tenant, first_token_s=wait) for tenant, wait in tenants.items()],
        adapters=[
            pb.AdapterResidency(digest="near", tier=DEVICE, bytes=1000),
            pb.AdapterResidency(digest="host", tier=HOST, bytes=1000),
            pb.AdapterResidency(digest="disk", tier=DISK, bytes=1000),
        ],
        load_times=pb.LoadTimes(
            to_device=pb.LoadTime(loads=1, fixed_s=0.5, seconds_per_byte=0.001),
            from_disk=pb.LoadTime(loads=1, fixed_s=2.0, seconds_per_byte=0.002),
        ),
    )


def ask(tenant: str = "t", tokens: int = 100, digest: str = "") -> pb.Submit:
    return pb.Submit(tenant=tenant, adapter_digest=digest, token_ids=pb.TokenIds(ids=[1] * tokens))


@pytest.fixture
def host() -> FirstTokenPrediction:
    host = FirstTokenPrediction()
    host.observed(status(busy=3.0))
    return host


def test_the_queue_of_its_tenant_and_its_own_prompt(host: FirstTokenPrediction) -> None:
    assert host.seconds(ask()) == pytest.approx(0.1 + 0.1)
    assert host.seconds(ask("busy")) == pytest.approx(3.0 + 0.1)
    assert host.seconds(pb.Submit(tenant="t", text="x" * 400)) == pytest.approx(0.2)
    chat = pb.Chat(messages=[pb.ChatMessage(role="user", content="x" * 200)] * 2)
    assert host.seconds(pb.Submit(tenant="t", chat=chat)) == pytest.approx(0.2)


def test_a_part_of_its_adapter_s_load(host: FirstTokenPrediction) -> None:
    loads = {digest: host.seconds(ask(digest=digest)) for digest in ("near", "host", "disk", "not there")}
    assert loads == pytest.approx({"near": 0.2, "host": 0.2 + 0.2 * 1.5, "disk": 0.2 + 0.2 * 5.5, "not there": 0.2})
    host.sent(ask(digest="disk"))
    assert host.seconds(ask(digest="disk")) == pytest.approx(0.3), "it is on its way"


def test_what_was_sent_since_the_heartbeat_counts_until_the_next(host: FirstTokenPrediction) -> None:
    host.sent(ask(tokens=1000))
    assert host.seconds(ask()) == pytest.approx(1.2)
    host.observed(status())
    assert host.seconds(ask()) == pytest.approx(0.2)


def test_what_is_sent_when_no_place_is_free_waits_for_one(host: FirstTokenPrediction) -> None:
    full = status()
    full.first_token.place_s, full.first_token.free_places = 0.02, 2
    host.observed(full)
    for expected in (0.2, 0.2, 0.2, 0.22, 0.24):
        assert host.seconds(ask()) == pytest.approx(expected)
        host.sent(ask(tokens=0))
    host.observed(full)
    assert host.seconds(ask()) == pytest.approx(0.2), "they are in the host's own forecast now"


def test_between_heartbeats_hosts_tell_their_load_only(host: FirstTokenPrediction) -> None:
    load = pb.HostStatus(first_token=pb.FirstTokenForecast(seconds=0.4, prompt_token_s=0.002), load_only=True)
    host.sent(ask(tokens=1000))
    host.observed(load)
    assert host.seconds(ask()) == pytest.approx(0.4 + 0.2)
    assert host.seconds(ask("busy")) == pytest.approx(0.4 + 0.2), "it waits no more"
    assert host.seconds(ask(digest="host")) == pytest.approx(0.6 + 0.2 * 1.5), "where adapters are is as it was"


def test_hosts_that_cannot_tell() -> None:
    host = FirstTokenPrediction()
    assert host.seconds(ask()) is None
    host.observed(pb.HostStatus(running=3))  # of an older version, or one that has just started
    assert host.seconds(ask()) is None
    host.sent(ask())
    host.observed(status())
    host.forget()
    assert host.seconds(ask()) is None


def test_the_soonest_is_chosen_and_of_about_equals_the_least_loaded() -> None:
    policy = SoonestFirstToken()
    loads = [
        HostLoad("far", 0, first_token_s=2.0),
        HostLoad("near, loaded", 9, first_token_s=0.100),
        HostLoad("near", 2, first_token_s=0.120),
    ]
    assert policy.choose(loads).name == "near"
    assert policy.choose([*loads, HostLoad("idle", 0, first_token_s=0.01)]).name == "idle"
    unknown = HostLoad("new", 1)
    assert policy.choose([loads[1], unknown]).name == "new", "as long as one cannot tell, requests are counted"


def test_equals_take_turns() -> None:
    policy = SoonestFirstToken()
    equals = [HostLoad(name, 0, first_token_s=0.01) for name in "abc"]
    assert {policy.choose(equals).name for _ in range(3)} == set("abc")


@pytest.mark.parametrize("name", ROUTING_POLICIES)
def test_every_policy_chooses_one(name: str) -> None:
    assert make_policy(name).choose([HostLoad("only", 5)]).name == "only"


def test_an_unknown_policy_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="first_token, least_pending, round_robin"):
        make_policy("best")


def test_of_many_hosts_some_are_compared_drawn_anew_each_time() -> None:
    names = [f"h{n}" for n in range(100)]
    seen = set[str]()
    for _ in range(60):
        drawn, others = compared(names)
        assert len(drawn) == MAX_COMPARED and sorted(drawn + others) == sorted(names)
        seen |= {*drawn}
    assert seen == {*names}
    assert compared(names[:MAX_COMPARED]) == (names[:MAX_COMPARED], [])


async def test_a_host_with_room_is_found_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that are drawn are full: the others come before them."""
    fleet = Fleet({f"h{n}": HostEndpoint(f"h{n}", f"unix:/nowhere/{n}.sock") for n in range(MAX_COMPARED + 8)})
    for host in fleet._hosts.values():
        host.client._connected.set()
    names = [*fleet._hosts]
    monkeypatch.setattr("control_plane.fleet.routing.connections.compared", lambda known: (known[8:], known[:8]))
    monkeypatch.setattr(Fleet, "_room", lambda self, hosts: int(hosts <= {*names[:4]}))
    assert [pool for pool in fleet._pools(names) if pool] == [names[:4], names[8:], names[4:8]]
