"""Servers that a tenant has adapters imported from, doing what no server should: they hold up and break nothing."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from lorikeet_testing.hub_server import commit_of

from control_plane.adapters.imports import bucket, fetching, follows, hub
from control_plane.adapters.imports.listing import MAX_FILES, RemoteFile
from control_plane.adapters.imports.models import HubFollow
from control_plane.adapters.imports.problems import SourceProblemError
from control_plane.adapters.imports.sources import SourceRefusedError, parse_source
from control_plane.adapters.uploads import actions as uploads
from control_plane.adapters.uploads import validation_job
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.core.http import egress
from control_plane.core.jobs import claims

Serve = Callable[[socket.socket], object]
COMMIT = "a" * 40


@contextmanager
def serving(serve: Serve) -> Iterator[str]:
    """A server that answers each connection by `serve`, once its request has come. Its address."""
    listening = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(1 << 16)
            serve(connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.close()


def dripping(head: bytes, rest: bytes = b"x" * 10_000, every_s: float = 0.02) -> Serve:
    def serve(connection: socket.socket) -> None:
        connection.sendall(head)
        for byte in rest:
            connection.sendall(bytes([byte]))
            time.sleep(every_s)

    return serve


def saying(head: bytes, body: bytes = b"") -> Serve:
    return lambda connection: connection.sendall(
        b"HTTP/1.1 " + head + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )


def listing(*names: str, commit: str = COMMIT) -> Serve:
    siblings = [{"rfilename": name, "size": 1} for name in names]
    return saying(b"200 OK", json.dumps({"sha": commit, "siblings": siblings}).encode())


@pytest.fixture
def allowed(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def allow(**more: Any) -> None:
        settings.LORIKEET = settings.LORIKEET.model_copy(update={"import_allow_private": True, **more})

    allow()
    monkeypatch.setattr(egress, "HEAD_S", 0.3)
    monkeypatch.setattr(egress, "DOCUMENT_S", 0.3)
    return allow


# -- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 302 Found\r\nLocation: /"])
def test_a_head_that_drips_ends(allowed: Any, head: bytes) -> None:
    began = time.monotonic()
    with (
        serving(dripping(head)) as address,
        pytest.raises(egress.EgressError, match="no answer within"),
        egress.get(f"{address}/a.zip", {}, allow_private=True),
    ):
        pass
    assert time.monotonic() - began < 3


def test_interim_answers_without_end(allowed: Any) -> None:
    def serve(connection: socket.socket) -> None:
        while True:
            connection.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n")
            time.sleep(0.02)

    with (
        serving(serve) as address,
        pytest.raises(egress.EgressError, match="no answer within"),
        egress.get(f"{address}/a.zip", {}, allow_private=True),
    ):
        pass


def test_a_document_that_drips_or_never_ends(allowed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    with serving(dripping(head)) as address, pytest.raises(egress.EgressError, match="was not complete within"):
        egress.get_document(address, {}, 1000, allow_private=True)
    monkeypatch.setattr(egress, "DOCUMENT_S", 60)
    with serving(dripping(head, every_s=0)) as address:
        document = egress.get_document(address, {}, 1000, allow_private=True)
        assert (document.status, document.body) == (200, None)


@pytest.mark.parametrize("head", [b"300 Choices", b"304 Not Modified", b"302 Found", b"399 So\r\nLocation: /x"])
def test_a_redirect_to_nowhere_is_an_answer(allowed: Any, head: bytes) -> None:
    with serving(saying(head)) as address, egress.get(f"{address}/a.zip", {}, allow_private=True) as answer:
        assert str(answer.status_code) == head[:3].decode()


@pytest.mark.parametrize(
    "location", [b"http://[", b"//", b"\xff\xfe://x", b"http://a:999999/", b"\x01", b"http://" + b"a" * 50_000, b"//@"]
)
def test_a_redirect_that_is_no_address(allowed: Any, location: bytes) -> None:
    with (
        serving(saying(b"302 Found\r\nLocation: " + location)) as address,
        pytest.raises((egress.EgressError, egress.UrlRefusedError)),
        egress.get(f"{address}/a.zip", {}, allow_private=True),
    ):
        pass


def test_redirects_in_a_circle(allowed: Any) -> None:
    with (
        serving(saying(b"302 Found\r\nLocation: /again")) as address,
        pytest.raises(egress.EgressError, match="redirects"),
        egress.get(f"{address}/a.zip", {}, allow_private=True),
    ):
        pass


@pytest.mark.parametrize("where", ["http://{0}:{1}", "http://localhost:{1}", "http://127.0.0.1:1{1}"])
def test_a_token_goes_to_one_origin(allowed: Any, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another name, or another port of the same one, is another server."""
    heard: list[tuple[str, dict[str, str]]] = []
    real = egress._get_at

    def at(client: Any, target: Any, addresses: Any, headers: Any, deadline: Any) -> Any:
        heard.append((target.netloc.decode(), dict(headers)))
        return real(client, target, addresses, headers, deadline)

    monkeypatch.setattr(egress, "_get_at", at)
    with serving(saying(b"200 OK", b"stolen")) as other:
        port = other.rpartition(":")[2]
        location = where.format("localhost", port) if "1{1}" not in where else other
        with (
            serving(saying(f"307 Go\r\nLocation: {location}/lfs".encode())) as address,
            egress.get(f"{address}/x", {"Authorization": "Bearer hf", "Range": "bytes=1-"}, allow_private=True),
        ):
            pass
    assert [headers for _, headers in heard] == [
        {"Authorization": "Bearer hf", "Range": "bytes=1-"},
        {"Range": "bytes=1-"},
    ]


# -- files ------------------------------------------------------------------------------------------------------------


def transfer_of(
    folder: Any, address: str, most: int, size: int | None = None, others_wait: bool = False
) -> fetching._Transfer:
    pace = fetching._Pace(lambda: others_wait)
    return fetching._Transfer(folder, 0, RemoteFile("a.zip", address, size), {}, most, pace)


def test_a_transfer_that_drips_gives_its_place_to_others(
    allowed: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "PATIENCE_S", 0.2)
    with serving(dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n")) as address:
        transfer = transfer_of(tmp_path, f"{address}/a.zip", 1 << 20)
        with pytest.raises(SourceProblemError, match="less than 10 KB") as raised:
            transfer.run(lambda: False)
    assert raised.value.passes


@pytest.mark.parametrize("others_wait", [True, False])
def test_a_slow_transfer_gives_its_place_only_if_others_wait(
    allowed: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, others_wait: bool
) -> None:
    """At 200 to 500 KB a second: what came is kept, and it goes on from there."""
    monkeypatch.setattr(fetching, "PATIENCE_S", 0.2)

    def serve(connection: socket.socket) -> None:
        connection.sendall(b'HTTP/1.1 200 OK\r\nETag: "a"\r\nContent-Length: 500000\r\n\r\n')
        for _ in range(50):
            connection.sendall(b"x" * 10_000)
            time.sleep(0.02)

    with serving(serve) as address:
        transfer = transfer_of(tmp_path, f"{address}/a.zip", 1 << 20, others_wait=others_wait)
        if not others_wait:
            assert transfer.run(lambda: False) == 500_000
            return
        with pytest.raises(SourceProblemError, match="other uploads wait") as raised:
            transfer.run(lambda: False)
    assert raised.value.passes
    assert 0 < (tmp_path / "0.part").stat().st_size < 500_000
    assert (tmp_path / "0.etag").read_text() == '"a"'


@pytest.mark.django_db(transaction=True)
def test_who_waits_for_the_place_of_an_import(acme: Any, globex: Any) -> None:
    def upload(of: Any, state: UploadState) -> Upload:
        return Upload.objects.create(tenant=of, adapter_name="a", state=state, folder="", files=[], bytes=0)

    slow = upload(acme.tenant, UploadState.VALIDATING)
    claims.take(slow)
    upload(acme.tenant, UploadState.RECEIVED)
    upload(globex.tenant, UploadState.REFUSED)
    assert not uploads.others_wait(slow), "its own do not count"
    resting = upload(globex.tenant, UploadState.RECEIVED)
    assert uploads.others_wait(slow)
    Upload.objects.filter(pk=resting.pk).update(claimed_until=timezone.now() + timedelta(minutes=1))
    assert not uploads.others_wait(slow)


@pytest.mark.parametrize("length", [b"", b"Content-Length: 1\r\n", b"Content-Length: -5\r\n"])
def test_a_body_without_end(allowed: Any, tmp_path: Any, length: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n")
        for _ in range(1000):
            connection.sendall(b"x" * 65536)

    with serving(serve) as address:
        transfer = transfer_of(tmp_path, f"{address}/a.zip", 500_000, 500_000)
        with pytest.raises((SourceProblemError, fetching._TooLargeError, egress.EgressError)):
            transfer.run(lambda: False)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 1 << 20


# -- listings ---------------------------------------------------------------------------------------------------------

ODD = ["../../etc/passwd", "/adapter_config.json", "a\0b/adapter_config.json", "\ud800/adapter_config.json", "x" * 5000]


def test_names_that_cannot_be_kept_are_no_files(allowed: Any) -> None:
    with serving(listing("adapter_config.json", "adapter_model.safetensors", *ODD)) as address:
        allowed(hub_url=address)
        found = hub.list_adapter("org/x", "main", {})
    assert [file.name for file in found.files] == ["adapter_config.json", "adapter_model.safetensors"]


def test_what_a_listing_says_can_be_stored(allowed: Any) -> None:
    with serving(listing(*ODD, "deep/" * 100 + "adapter_config.json")) as address:
        allowed(hub_url=address)
        with pytest.raises(SourceProblemError) as raised:
            hub.list_adapter("org/x", "main", {})
    json.dumps(raised.value.problem, ensure_ascii=False).encode()
    assert "\0" not in str(raised.value.problem)
    assert len(str(raised.value.problem)) < 5000


def test_a_hundred_thousand_files(allowed: Any) -> None:
    shards = [f"adapter_model-{index:05}-of-40000.safetensors" for index in range(40_000)]
    with serving(listing("adapter_config.json", *shards)) as address:
        allowed(hub_url=address)
        monkey = pytest.MonkeyPatch()
        with monkey.context() as patch:
            patch.setattr(egress, "DOCUMENT_S", 20.0)
            with pytest.raises(SourceProblemError) as raised:
                hub.list_adapter("org/x", "main", {})
    assert raised.value.problem["code"] == "too_many_files"
    assert str(MAX_FILES - 1) in raised.value.problem["fix"]


def entry(key: str, size: str) -> str:
    return f"<ListBucketResult><Contents><Key>{key}</Key><Size>{size}</Size></Contents></ListBucketResult>"


@pytest.mark.parametrize(
    "body",
    [
        b"<a>" * (1 << 20),
        b"<a/>" * (1 << 20),
        entry("a/x", "-5").encode(),
        entry("a/x", "9" * 5000).encode(),
        entry("a/x", "nan").encode(),
        ('<?xml version="1.0" encoding="utf-16"?><!DOCTYPE r [<!ENTITY e "x">]>' + entry("&e;", "1")).encode("utf-16"),
        '<?xml version="1.0" encoding="cp037"?><!DOCTYPE r [<!ENTITY e "x">]>'.encode("cp037"),
        b"\xff\xfe",
    ],
)
def test_a_listing_that_is_none(body: bytes) -> None:
    began = time.monotonic()
    with pytest.raises(SourceProblemError) as raised:
        bucket._page(body, "a/")
    assert raised.value.problem["code"] == "bucket_answer"
    assert time.monotonic() - began < 1


# -- sources ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "https://example.org/a%00.zip", "https://example.org/%0d%0a.zip", "https://user@example.org/a.zip",
        "https://example.org\\@127.0.0.1/a.zip", "https://[::ffff:7f00:1]/a.zip", "https://[64:ff9b::7f00:1]/a.zip",
        "https://0x7f.1/a.zip", "https://①②⑦.0.0.1/a.zip", "ftp://example.org/a.zip", "file:///etc/a.zip",
        "gopher://example.org/a.zip", "hub:../../api/whoami", "hub:org/..", "hub:org/name@../../../x", "hub:оrg/name",
        "hub:org/name\0", "hub:org/name\n", "s3://bucket/../other", "s3://b\u0131cket/x", "s3://bucket/a\0b", "",
        "hub:" + "a" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_source(source: str) -> None:
    with pytest.raises(SourceRefusedError):
        parse_source(source)


# -- the whole way ----------------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(
    "serve",
    [
        saying(b"304 Not Modified"),
        saying(b"302 Found"),
        saying(b"206 Partial\r\nContent-Range: bytes 7-9/3", b"abc"),
        saying(b"200 OK\r\nContent-Encoding: gzip", b"abc"),
        saying(b"200 OK", b"PK\x03\x04" + b"\0" * 100),
        saying(b"999 Odd"),
        lambda connection: connection.sendall(b"\0\r\n\r\n"),
        lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000),
        lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        lambda connection: None,
    ],
)
def test_whatever_it_answers_the_import_is_decided_or_waits(
    acme: Any, host: Any, queue: Any, committing: Any, in_process: None, allowed: Any, serve: Serve
) -> None:
    with serving(serve) as address, committing():
        begun = acme.client().post(acme.path("imports"), {"name": "x", "source": f"{address}/a.zip"}, format="json")
        assert begun.status_code == 202, begun.content
        assert validation_job.validate_next()
    upload = Upload.objects.get()
    assert upload.state in (UploadState.REFUSED, UploadState.RECEIVED)
    assert upload.reason and all(upload.reason[name] for name in ("code", "message", "fix"))


@pytest.mark.django_db
@pytest.mark.parametrize(
    "serve", [saying(b"304 Not"), saying(b"200 OK", b"[" * 100_000), saying(b"200 OK", b'{"sha": 1}'), listing()]
)
def test_one_that_is_followed_holds_up_no_other(acme: Any, host: Any, allowed: Any, serve: Serve) -> None:
    for name in ("a", "b"):
        HubFollow.objects.create(
            tenant=acme.tenant, adapter_name=name, source="hub:org/x@main", next_check_at=timezone.now()
        )
    with serving(serve) as address:
        allowed(hub_url=address)
        assert follows.poll_due() == 2
    assert all(follow.checked_at for follow in HubFollow.objects.all())


@pytest.mark.django_db
def test_a_branch_that_moves_all_the_time(acme: Any, host: Any, allowed: Any, queue: Any) -> None:
    """One import at a time, however often it moves: the next begins once the one before is decided."""
    HubFollow.objects.create(
        tenant=acme.tenant, adapter_name="a", source="hub:org/x@main", next_check_at=timezone.now()
    )
    moves = iter(range(10_000))

    def serve(connection: socket.socket) -> None:
        listing(commit=commit_of({"n": str(next(moves)).encode()}))(connection)

    with serving(serve) as address:
        allowed(hub_url=address)
        for _ in range(5):
            HubFollow.objects.update(next_check_at=timezone.now())
            assert follows.poll_due() == 1
        assert Upload.objects.count() == 1
        Upload.objects.update(state="refused")
        HubFollow.objects.update(next_check_at=timezone.now())
        assert follows.poll_due() == 1
    assert Upload.objects.count() == 2
