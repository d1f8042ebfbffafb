"""Hosts that joined: the API of tokens and credentials, who follows them, and certificates that are renewed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from lorikeet_testing.fake_engine import FakeEngine, FakeEngineThread
from lorikeet_testing.joining import *  # noqa: F403
from lorikeet_testing.joining import Machine, token
from lorikeet_testing.platform_fixtures import Org, Queue
from lorikeet_testing.web import wait_until
from rest_framework.test import APIClient

from control_plane.core.config import current
from control_plane.fleet.hosts.leader_election import FileLease
from control_plane.fleet.hosts.models import EngineHost
from control_plane.fleet.hosts.watcher import FleetWatcher
from control_plane.fleet.joining.joining import renew, renew_due, revoke_host
from control_plane.fleet.joining.tasks import renew_certificate
from control_plane.fleet.routing.connections import Fleet
from control_plane.fleet.transport.endpoint import HostEndpoint, endpoint_of, known_endpoints
from control_plane.fleet.transport.errors import HostError
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.accounts.actions import set_operator
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.tenants.roles import Role
from lora_engine.errors import StartupError
from lora_engine.server import joining
from lora_engine.server.identity import Identity, expiry
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire.versions import WIRE_VERSION

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("api", "queue")]


@pytest.fixture
def operator(acme: Org) -> APIClient:
    set_operator(actor=SYSTEM, user=acme.users[Role.OWNER], operator=True)
    return acme.client()


def shown(operator: APIClient) -> dict[str, Any]:
    return {host["name"]: host for host in operator.get("/api/operator/hosts").json()}


def test_an_operator_lets_a_machine_join_sees_it_and_revokes_it(operator: APIClient, machine: Machine) -> None:
    made = operator.post("/api/operator/join-tokens", {"expires_s": 120}, format="json")
    assert made.status_code == 201 and made.json()["join_url"] == current().address
    machine.join(made.json()["token"])
    (row,) = operator.get("/api/operator/join-tokens").json()
    assert (row["state"], row["used_by"]) == ("used", "gpu1") and "token" not in row
    host = shown(operator)["gpu1"]
    assert host["joined"]["revoked_at"] is None and host["address"] == machine.address
    days = (datetime.fromisoformat(host["joined"]["certificate_expires_at"]) - timezone.now()).days
    assert 28 <= days <= 30
    assert operator.delete("/api/operator/hosts/gpu1/credential").status_code == 204
    assert operator.delete("/api/operator/hosts/gpu1/credential").status_code == 204  # again: the same
    assert shown(operator)["gpu1"]["quarantine"]["code"] == "revoked"
    assert operator.delete("/api/operator/hosts/gpu1").status_code == 204
    assert "gpu1" not in shown(operator)
    assert operator.delete("/api/operator/hosts/gpu1").status_code == 404
    actions = AuditEvent.objects.filter(action__regex="^(join_token|host)").order_by("pk")
    assert [row.action for row in actions] == ["join_token.create", "host.join", "host.revoke", "host.forget"]


def test_a_host_of_the_settings_is_neither_revoked_nor_forgotten(operator: APIClient, host: EngineHost) -> None:
    for path in ("hosts/local/credential", "hosts/local"):
        refused = operator.delete(f"/api/operator/{path}")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "host_not_joined")
    assert shown(operator)["local"]["joined"] is None


def test_a_token_is_withdrawn(operator: APIClient) -> None:
    made = operator.post("/api/operator/join-tokens", {"host": "gpu7"}, format="json").json()
    assert (made["host"], made["state"]) == ("gpu7", "open")
    for _ in range(2):
        assert operator.delete(f"/api/operator/join-tokens/{made['id']}").status_code == 204
    (row,) = operator.get("/api/operator/join-tokens").json()
    assert row["state"] == "withdrawn"


def test_a_command_makes_tokens_too(capsys: pytest.CaptureFixture[str], machine: Machine) -> None:
    call_command("create_join_token", "--host", "gpu1", "--minutes", "5")
    words = capsys.readouterr().out.split()
    assert machine.join(words[words.index("--token") + 1]).name == "gpu1"
    with pytest.raises(CommandError, match="name"):
        call_command("create_join_token", "--host", "a b")


def test_a_host_that_starts_again_needs_no_token_and_no_control_plane(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = token()
    first = machine.join(text)._identity
    monkeypatch.setattr("lora_engine.server.joining._post", None)
    assert machine.join()._identity == first
    assert machine.join(text)._identity == first  # the same command as before


def test_a_certificate_that_expired_while_it_was_away_is_said(machine: Machine, settings: Any) -> None:
    settings.LORIKEET = current().model_copy(update={"host_certificate_s": -1})
    text = token()
    with pytest.raises(StartupError, match="clock"):  # not away yet: so it looks from a machine in the future
        machine.join(text)
    with pytest.raises(StartupError, match="expired"):
        machine.join(text)
    settings.LORIKEET = current().model_copy(update={"host_certificate_s": 60})
    machine.join(token("gpu1"))
    machine.join()


def test_a_clock_that_is_behind_is_said_and_costs_no_other_token(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = token()
    with monkeypatch.context() as behind:
        behind.setattr(joining, "datetime", SimpleNamespace(now=lambda zone: datetime.now(zone) - timedelta(hours=1)))
        for _ in range(2):
            with pytest.raises(StartupError, match="this machine's clock says") as said:
                machine.join(text)
        assert "has joined" in str(said.value) and "same command" in str(said.value)
    assert machine.join(text).name == machine.name


# -- renewal ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def engine(machine: Machine) -> Iterator[FakeEngineThread]:
    thread = FakeEngineThread(machine.address, identity=machine.join(token()))
    yield thread
    thread.close()


def kept(machine: Machine) -> Identity:
    return machine.join()._identity


def test_renewal_makes_a_new_key_and_new_connections_meet_it(
    engine: FakeEngineThread, machine: Machine, settings: Any
) -> None:
    before = kept(machine)
    settings.LORIKEET = current().model_copy(update={"host_certificate_s": 120 * 86_400})
    renew_certificate("gpu1")
    after = kept(machine)
    assert after.key != before.key and expiry(after.certificate) > expiry(before.certificate) + timedelta(days=80)
    host = EngineHost.objects.get(name="gpu1")
    assert host.certificate_expires_at is not None
    assert abs(host.certificate_expires_at - expiry(after.certificate)) < timedelta(seconds=2)
    renew_certificate("gpu1")  # by a connection that meets the new certificate
    assert AuditEvent.objects.filter(action="host.renew").count() == 2


def test_what_has_less_than_a_third_left_is_renewed(
    engine: FakeEngineThread, queue: Queue, committing: Any, settings: Any
) -> None:
    EngineHost.objects.filter(name="gpu1").update(state="online")
    with committing():
        renew_due()
    assert "renew_certificate" not in queue.names()
    settings.LORIKEET = current().model_copy(update={"host_certificate_s": 95 * 86_400})
    with committing():
        renew_due()
    assert queue.names() == ["renew_certificate"]


def test_a_host_revoked_meanwhile_is_not_renewed(engine: FakeEngineThread, caplog: pytest.LogCaptureFixture) -> None:
    endpoint = endpoint_of("gpu1")
    revoke_host(actor=SYSTEM, name="gpu1")
    renew_certificate("gpu1")
    assert "could not be renewed" in caplog.text
    renew(endpoint)  # of a worker that had begun
    assert EngineHost.objects.get(name="gpu1").certificate_expires_at is None


# -- who follows them -------------------------------------------------------------------------------------------------


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[list[FakeEngine]]:
    engines = [FakeEngine(f"unix:{tmp_path}/{name}.sock") for name in ("a", "b")]
    for engine in engines:
        await engine.start()
    yield engines
    for engine in engines:
        await engine.stop()


async def test_requests_go_to_hosts_that_join_and_leave_those_that_are_gone(two: list[FakeEngine]) -> None:
    a, b = (HostEndpoint(name, engine.address) for name, engine in zip("ab", two, strict=True))
    fleet = Fleet({})
    with pytest.raises(HostError, match="No engine host is ready"):
        await fleet.submit(pb.Submit(request_id="r0"), ["a"], "m")
    await fleet.follow({"a": a})
    stream = await fleet.submit(pb.Submit(request_id="r1", text="words 5000"), ["a", "b"], "m")
    assert stream.host == "a"
    await fleet.follow({"a": a, "b": b})
    assert fleet.client("a").open_requests == 1  # it was not disturbed
    await fleet.follow({"b": b})
    with pytest.raises(HostError):
        async for _ in stream:
            pass
    await wait_until(lambda: not two[0].running)
    assert not fleet.hangs("a") and fleet.status("a") is None and not fleet.accepts("a", "")
    with pytest.raises(HostError):
        fleet.client("a")
    stream = await fleet.submit(pb.Submit(request_id="r2", text="words 1"), ["a", "b"], "m")
    stream.close()
    assert stream.host == "b"
    await fleet.close()


async def test_the_watcher_follows_hosts_that_join_and_leaves_those_that_are_gone(
    two: list[FakeEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed: set[str] = set()

    class Follower:
        def __init__(self, endpoint: HostEndpoint, *, interval_s: float) -> None:
            self.name = endpoint.address

        async def run(self) -> None:
            followed.add(self.name)
            try:
                await asyncio.Event().wait()
            finally:
                followed.discard(self.name)

    monkeypatch.setattr("control_plane.fleet.hosts.watcher.HostWatcher", Follower)
    monkeypatch.setattr("control_plane.fleet.hosts.watcher.LEASE_CHECK_S", 0.01)
    monkeypatch.setattr("control_plane.fleet.hosts.watcher.actions.sync_hosts", lambda endpoints: None)
    hosts = {"a": HostEndpoint("a", "a:1", credential="x")}
    task = asyncio.create_task(FleetWatcher(lambda: dict(hosts), FileLease(tmp_path / "l")).run())
    try:
        await wait_until(lambda: followed == {"a:1"})
        hosts["b"] = HostEndpoint("b", "b:1", credential="y")
        await wait_until(lambda: followed == {"a:1", "b:1"})
        hosts["a"] = HostEndpoint("a", "a:2", credential="z")  # it joined anew
        await wait_until(lambda: followed == {"a:2", "b:1"})
        del hosts["b"]
        await wait_until(lambda: followed == {"a:2"})
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_the_settings_come_first(machine: Machine, tmp_path: Path, settings: Any) -> None:
    machine.join(token())
    Machine(tmp_path, "gpu0").join(token())
    assert list(known_endpoints()) == ["local", "gpu1", "gpu0"]
    settings.LORIKEET = current().model_copy(update={"engine_hosts": {"gpu1": "unix:/x.sock"}})
    assert known_endpoints()["gpu1"].address == "unix:/x.sock"


def test_an_engine_of_a_release_that_is_not_supported_is_refused_and_keeps_its_token(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    join_token = token()
    monkeypatch.setattr(joining, "WIRE_VERSION", WIRE_VERSION + 2)
    with pytest.raises(StartupError, match="409 unsupported_engine"):
        machine.join(join_token)
    monkeypatch.setattr(joining, "WIRE_VERSION", WIRE_VERSION + 1)
    machine.join(join_token)
