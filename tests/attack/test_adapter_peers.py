"""An adapter's bytes from another host: the same as the store's or none, for one adapter, for minutes, and a bounded
number at once. A peer that dies, stands still, lies or says too much costs a moment, and the store gives them."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import grpc
import pytest
from google.protobuf.message import Message
from lorikeet_testing.joining import *  # noqa: F403
from lorikeet_testing.joining import Machine, free_port, token
from lorikeet_testing.seed import add_version

from control_plane.core.config import current
from control_plane.fleet.hosts import actions
from control_plane.fleet.hosts.models import EngineHost
from control_plane.fleet.joining import authority
from control_plane.fleet.placements import peers
from control_plane.fleet.placements.models import Placement
from control_plane.fleet.transport.endpoint import endpoint_of
from lora_engine.adapters import peers as reading
from lora_engine.adapters.disk_tier import DiskTier
from lora_engine.adapters.download import fetch
from lora_engine.errors import StageError
from lora_engine.peft_format import CONFIG_FILE, WEIGHTS_FILE, adapter_digest, folder_digests
from lora_engine.server import service
from lora_engine.server.host import HostServer
from lora_engine.server.identity import HostIdentity
from lora_engine.server.listening import bind, make_server
from lora_engine.server.service import EngineService
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire import engine_pb2_grpc

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("api", "queue")]
WEIGHTS = b"weights" * 400_000  # three blocks
MOST = 1 << 23
M = TypeVar("M", bound=Message)


def changed(message: M, **fields: Any) -> M:
    """A copy with other values in these fields."""
    copy = type(message)()
    copy.CopyFrom(message)
    for name in fields:
        copy.ClearField(name)
    copy.MergeFrom(type(message)(**fields))
    return copy


class Server:
    """A host that joined, with what it has on its disk, on a loop of its own."""

    def __init__(self, machine: Machine, disk: DiskTier, identity: HostIdentity, kind: type[EngineService]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.host = SimpleNamespace(
            resident_adapters=SimpleNamespace(readers=0),
            tiers=SimpleNamespace(disk=SimpleNamespace(reading=self._reading)),
        )
        self.readers = list[int]()  # how many there were when each began
        self._disk = disk
        self.service = kind(cast(HostServer, self.host), identity)
        self._server = self._run(self._start(machine, identity))

    async def _start(self, machine: Machine, identity: HostIdentity) -> Any:
        server = make_server(machine.config())
        engine_pb2_grpc.add_EngineServicer_to_server(self.service, server)  # type: ignore[no-untyped-call]
        bind(server, machine.config(), identity)
        await server.start()
        return server

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    def _reading(self, digest: str) -> AbstractContextManager[Path]:
        self.readers.append(self.host.resident_adapters.readers)
        return self._disk.reading(digest)

    def close(self) -> None:
        self._run(self._server.stop(0))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class Store:
    """A web server with the two files, and how often it was asked."""

    def __init__(self, folder: Path) -> None:
        asked = self.asked = list[str]()

        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, *_arguments: object) -> None:
                asked.append(self.path)

        handler = functools.partial(Handler, directory=str(folder))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "published"
    folder.mkdir()
    (folder / CONFIG_FILE).write_text("{}")
    (folder / WEIGHTS_FILE).write_bytes(WEIGHTS)
    return folder


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    store = Store(folder)
    yield store
    store.close()


@pytest.fixture
def artifact(folder: Path, store: Store) -> pb.StageAdapterRequest:
    digests = folder_digests(folder)
    return pb.StageAdapterRequest(digest=adapter_digest(digests), source_uri=store.url, file_digests=digests)


@pytest.fixture
def server(
    request: pytest.FixtureRequest, machine: Machine, tmp_path: Path, artifact: pb.StageAdapterRequest, folder: Path
) -> Iterator[Server]:
    identity = machine.join(token())
    disk = DiskTier(tmp_path / "its disk", MOST)
    with disk.adding(artifact.digest) as place:
        fetch(changed(artifact, source_uri=f"file://{folder}"), place, MOST, lambda done, total: None)
    marker = request.node.callspec.params.get("answer") if hasattr(request.node, "callspec") else None
    kind = type("Other", (EngineService,), {"ReadAdapter": marker}) if marker else EngineService
    server = Server(machine, disk, identity, kind)
    yield server
    server.close()


@pytest.fixture
def peer(server: Server, artifact: pb.StageAdapterRequest) -> pb.AdapterPeer:
    """As the control plane makes it."""
    endpoint = endpoint_of("gpu1")
    own = authority.reading_identity(artifact.digest)
    name = authority.server_name(endpoint.credential)
    return pb.AdapterPeer(
        address=endpoint.address,
        server_name=name,
        authority=authority.authority_certificate(),
        certificate=own.certificate,
        key=own.key,
    )


def staged(tmp_path: Path, artifact: pb.StageAdapterRequest) -> list[tuple[int, int]]:
    """What was told while it was fetched; its bytes are right."""
    told: list[tuple[int, int]] = []
    disk = DiskTier(tmp_path / "own disk", MOST)
    with disk.adding(artifact.digest) as place:
        fetch(artifact, place, MOST, lambda done, total: told.append((done, total)))
    with disk.reading(artifact.digest) as place:
        assert folder_digests(place) == dict(artifact.file_digests)
    assert not [*(tmp_path / "own disk" / "incoming").iterdir()]
    return told


def test_it_comes_from_the_host_that_has_it(
    tmp_path: Path, artifact: pb.StageAdapterRequest, peer: pb.AdapterPeer, store: Store
) -> None:
    told = staged(tmp_path, changed(artifact, peers=(peer,)))
    assert not store.asked
    assert told[-1] == (len(WEIGHTS) + 2, len(WEIGHTS) + 2) and len(told) == 4


def test_a_folder_that_hosts_do_not_share(
    tmp_path: Path, artifact: pb.StageAdapterRequest, peer: pb.AdapterPeer, folder: Path
) -> None:
    staged(tmp_path, changed(artifact, source_uri="file:///nowhere", peers=(peer,)))
    alone = changed(artifact, source_uri="file:///nowhere")
    with (
        pytest.raises(StageError, match="no adapter_config"),
        DiskTier(tmp_path / "3", MOST).adding(alone.digest) as place,
    ):
        fetch(alone, place, MOST, lambda done, total: None)


Answer = Callable[[EngineService, Any, Any], AsyncIterator[pb.AdapterBytes]]


async def breaks_off(self: EngineService, request: Any, context: Any) -> AsyncIterator[pb.AdapterBytes]:
    yield pb.AdapterBytes(data=WEIGHTS[: 1 << 20], total=len(WEIGHTS))
    await context.abort(grpc.StatusCode.UNAVAILABLE, "killed")


async def ends_early(self: EngineService, request: Any, context: Any) -> AsyncIterator[pb.AdapterBytes]:
    yield pb.AdapterBytes(data=WEIGHTS[: 1 << 20], total=len(WEIGHTS))


async def stands_still(self: EngineService, request: Any, context: Any) -> AsyncIterator[pb.AdapterBytes]:
    yield pb.AdapterBytes(data=WEIGHTS[: 1 << 20], total=len(WEIGHTS))
    await asyncio.sleep(100)


async def lies(self: EngineService, request: Any, context: Any) -> AsyncIterator[pb.AdapterBytes]:
    yield pb.AdapterBytes(data=b"{ }", total=3)


async def never_ends(self: EngineService, request: Any, context: Any) -> AsyncIterator[pb.AdapterBytes]:
    while True:
        yield pb.AdapterBytes(data=WEIGHTS[: 1 << 20])


async def says_nothing(self: EngineService, request: Any, context: Any) -> AsyncIterator[pb.AdapterBytes]:
    for message in list[pb.AdapterBytes]():
        yield message


@pytest.mark.parametrize("answer", [breaks_off, ends_early, stands_still, lies, never_ends, says_nothing])
def test_the_store_gives_what_a_peer_does_not(
    tmp_path: Path,
    artifact: pb.StageAdapterRequest,
    answer: Answer,
    peer: pb.AdapterPeer,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "_IDLE_S", 0.3)
    staged(tmp_path, changed(artifact, peers=(peer,)))
    assert len(store.asked) == 2


def test_one_that_cannot_be_reached_or_is_another(
    tmp_path: Path,
    artifact: pb.StageAdapterRequest,
    peer: pb.AdapterPeer,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "_CONNECT_S", 0.5)
    away = changed(peer, address=f"127.0.0.1:{free_port()}")
    revoked = changed(peer, server_name=authority.server_name("another"))
    staged(tmp_path, changed(artifact, peers=(away, revoked)))
    assert len(store.asked) == 2


def channel(peer: pb.AdapterPeer) -> grpc.Channel:
    credentials = grpc.ssl_channel_credentials(peer.authority, peer.key, peer.certificate)
    return grpc.secure_channel(peer.address, credentials, options=[("grpc.ssl_target_name_override", peer.server_name)])


def read(peer: pb.AdapterPeer, digest: str, file: str = CONFIG_FILE) -> bytes | grpc.StatusCode:
    with channel(peer) as open_channel:
        stub = engine_pb2_grpc.EngineStub(open_channel)  # type: ignore[no-untyped-call]
        try:
            return b"".join(part.data for part in stub.ReadAdapter(pb.ReadAdapterRequest(digest=digest, file=file)))
        except grpc.RpcError as error:
            return cast(grpc.StatusCode, cast(grpc.Call, error).code())


METHODS = [method.name for method in pb.DESCRIPTOR.services_by_name["Engine"].methods if method.name != "ReadAdapter"]


def call(open_channel: grpc.Channel, name: str) -> None:
    method = pb.DESCRIPTOR.services_by_name["Engine"].methods_by_name[name]
    path = f"/lorikeet.engine.v1.Engine/{name}"
    if method.client_streaming:
        next(open_channel.stream_stream(path)(iter([b""]), timeout=5))
    elif method.server_streaming:
        next(open_channel.unary_stream(path)(b"", timeout=5))
    else:
        open_channel.unary_unary(path)(b"", timeout=5)


def test_who_may_read_an_adapter_may_do_nothing_else(peer: pb.AdapterPeer) -> None:
    assert len(METHODS) > 15
    with channel(peer) as open_channel:
        for name in METHODS:
            with pytest.raises(grpc.RpcError) as refused:
                call(open_channel, name)
            assert cast(grpc.Call, refused.value).code() == grpc.StatusCode.PERMISSION_DENIED, name


def test_nor_read_another_adapter_or_file(
    peer: pb.AdapterPeer, artifact: pb.StageAdapterRequest, server: Server
) -> None:
    assert read(peer, artifact.digest) == b"{}"
    assert read(peer, "sha256:" + "0" * 64) == grpc.StatusCode.PERMISSION_DENIED
    assert read(peer, artifact.digest, "../../identity.json") == grpc.StatusCode.INVALID_ARGUMENT
    own = authority.client_identity()
    as_control_plane = changed(peer, certificate=own.certificate, key=own.key)
    assert read(as_control_plane, artifact.digest) == b"{}"
    assert read(as_control_plane, "sha256:" + "0" * 64) == grpc.StatusCode.NOT_FOUND


def test_only_for_minutes(
    peer: pb.AdapterPeer, artifact: pb.StageAdapterRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authority, "_READING_LIFE", timedelta(seconds=-1))
    own = authority.reading_identity(artifact.digest)
    late = changed(peer, certificate=own.certificate, key=own.key)
    assert read(late, artifact.digest) == grpc.StatusCode.UNAVAILABLE


def test_not_more_at_once_than_may(
    peer: pb.AdapterPeer, artifact: pb.StageAdapterRequest, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_MAX_READERS", 0)
    assert read(peer, artifact.digest) == grpc.StatusCode.RESOURCE_EXHAUSTED
    monkeypatch.setattr(service, "_MAX_READERS", 1)
    assert {read(peer, artifact.digest) for _ in range(3)} == {b"{}"}, "who has read makes room"
    assert server.readers == [1, 1, 1] and server.host.resident_adapters.readers == 0, (
        "and heartbeats tell how many there are"
    )


def test_hosts_that_joined_and_say_that_they_have_it_are_asked(
    machine: Machine, tmp_path: Path, acme: Any, settings: Any
) -> None:
    version = add_version(acme.tenant, "support")
    for each in (machine, Machine(tmp_path, "gpu2")):
        each.join(token())
    EngineHost.objects.update(state="online", active=True)
    gpu1, gpu2 = EngineHost.objects.get(name="gpu1"), EngineHost.objects.get(name="gpu2")
    wanted = Placement(host=gpu2, version=version)
    assert peers.peers_of(wanted) == []
    gpu1.adapters.create(digest=version.digest, tier="disk", running=0, bytes=1, rank=1)
    gpu2.adapters.create(digest=version.digest, tier="disk", running=0, bytes=1, rank=1)
    (found,) = peers.peers_of(wanted)
    assert (found.address, found.server_name) == (machine.address, authority.server_name(gpu1.credential))
    of_settings = EngineHost.objects.create(name="settings", address="10.0.0.1:1", state="online")
    assert peers.peers_of(Placement(host=of_settings, version=version)) == []
    settings.LORIKEET = current().model_copy(update={"stage_from_peers": False})
    assert peers.peers_of(wanted) == []
    settings.LORIKEET = current().model_copy(update={"stage_from_peers": True})
    for change in ({"state": "offline"}, {"credential": ""}):
        EngineHost.objects.filter(pk=gpu1.pk).update(**change)
        assert peers.peers_of(wanted) == []


def test_the_nearest_are_asked_first(tmp_path: Path, acme: Any) -> None:
    version = add_version(acme.tenant, "support")
    for number in range(6):
        Machine(tmp_path, f"gpu{number}").join(token())
    rows = [("", 0), ("a", 3), ("a", 1), ("b", 0), ("b", 0), ("", 2)]
    for number, (zone, readers) in enumerate(rows):
        name = f"gpu{number}"
        actions.record_boot(name, pb.EngineDescription(boot_id="1", zone=zone))
        actions.record_status(name, pb.HostStatus(boot_id="1", adapter_readers=readers))
        EngineHost.objects.get(name=name).adapters.create(
            digest=version.digest, tier="disk", running=0, bytes=1, rank=1
        )
    of_name = {authority.server_name(host.credential): host.name for host in EngineHost.objects.all()}

    def asked(number: int) -> list[str]:
        wanted = Placement(host=EngineHost.objects.get(name=f"gpu{number}"), version=version)
        return [of_name[peer.server_name] for peer in peers.peers_of(wanted)]

    drawn = {tuple(asked(1)) for _ in range(30)}
    assert {order[0] for order in drawn} == {"gpu2"}, "of its zone, before hosts that nobody reads from"
    assert {frozenset(order[1:]) for order in drawn} > {frozenset({"gpu3", "gpu4"})}, "others equally near are drawn"
    assert {order[0] for order in (asked(3) for _ in range(10))} == {"gpu4"}
    assert {host for _ in range(30) for host in asked(0)} == {"gpu2", "gpu3", "gpu4"}, "no zone: who is least read from"
    EngineHost.objects.filter(name="gpu3").update(last_status={}, description={})
    assert set(asked(0)) == {"gpu2", "gpu3", "gpu4"}, "an engine of before says neither"
