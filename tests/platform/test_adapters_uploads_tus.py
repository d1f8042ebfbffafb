"""Resumable uploads: the protocol over ASGI, and over a real server that is killed in the middle."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.utils import timezone
from lorikeet_testing.fake_engine import FakeEngineThread
from lorikeet_testing.peft_files import adapter_files
from lorikeet_testing.tus_requests import BODY, TUS, ask, at, creation, metadata, tar_of
from lorikeet_testing.web import WebProcess, eventually

from control_plane.adapters.uploads import actions as uploads
from control_plane.adapters.uploads import validation_job
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.adapters.uploads.partial_file import KEEP_EVERY, Transfer, UploadBusyError, acknowledged
from control_plane.adapters.uploads.resumable import tend_arriving
from control_plane.core.db import run_db
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.tenants.roles import Role

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def archive() -> bytes:
    return tar_of(adapter_files())


@pytest.fixture
def key(acme: Any) -> str:
    return str(acme.key()[1])


async def begin(acme: Any, key: str, archive: bytes) -> str:
    answer = await ask("POST", acme.path("uploads/resumable"), creation(len(archive)), key=key)
    assert answer.status == 201, answer.body
    return answer.headers["location"]


async def offset(path: str, key: str) -> int:
    answer = await ask("HEAD", path, TUS, key=key)
    assert answer.status == 200
    assert answer.headers["cache-control"] == "no-store"
    return int(answer.headers["upload-offset"])


async def test_pieces_become_a_version(acme: Any, key: str, host: Any, queue: Any, archive: bytes) -> None:
    path = await begin(acme, key, archive)
    assert await offset(path, key) == 0
    half = len(archive) // 2
    first = await ask("PATCH", path, at(0), archive[:100], archive[100:half], key=key)
    assert (first.status, first.headers["upload-offset"]) == (204, str(half))
    assert queue.names() == []
    last = await ask("PATCH", path, at(half), archive[half:], key=key)
    assert (last.status, last.headers["upload-offset"]) == (204, str(len(archive)))
    assert queue.names() == ["validate_next"]
    assert await offset(path, key) == len(archive)
    upload = await run_db(Upload.objects.get)
    await run_db(validation_job.validate_next)
    await run_db(upload.refresh_from_db)
    assert (upload.state, upload.reason) == (UploadState.ACCEPTED, None)
    assert not Path(upload.folder).exists()
    again = await ask("PATCH", path, at(len(archive)), b"more", key=key)
    assert (again.status, again.code, again.taken) == (410, "upload_ended", 0)


async def test_creation_with_upload(acme: Any, key: str, queue: Any, archive: bytes) -> None:
    headers = {**creation(len(archive)), "content-type": BODY["content-type"]}
    answer = await ask("POST", acme.path("uploads/resumable"), headers, archive, key=key)
    assert (answer.status, answer.headers["upload-offset"]) == (201, str(len(archive)))
    assert queue.names() == ["validate_next"]


async def test_extensions_that_are_not_served_are_refused_by_name(acme: Any, key: str) -> None:
    for header, value in (("Upload-Concat", "partial"), ("Upload-Defer-Length", "1")):
        answer = await ask("POST", acme.path("uploads/resumable"), {**creation(9), header.lower(): value}, key=key)
        assert (answer.status, answer.code) == (400, "extension_not_served")
        assert header in str(answer.body)
    assert not await run_db(Upload.objects.exists)


async def test_wrong_methods_say_which_are_right(acme: Any, key: str) -> None:
    answer = await ask("PATCH", acme.path("uploads/resumable"), TUS, key=key)
    assert (answer.status, answer.headers["allow"]) == (405, "POST, OPTIONS")


async def test_dropped_connection(acme: Any, key: str, queue: Any, archive: bytes) -> None:
    path = await begin(acme, key, archive)
    dropped = await ask("PATCH", path, at(0), archive[:700], key=key, drops=True)
    assert dropped.status == 0
    assert await offset(path, key) == 700
    rest = await ask("PATCH", path, at(700), archive[700:], key=key)
    assert rest.status == 204
    upload = await run_db(Upload.objects.get)
    assert (Path(upload.folder) / "0").read_bytes() == archive


async def test_wrong_offset(acme: Any, key: str, archive: bytes) -> None:
    path = await begin(acme, key, archive)
    answer = await ask("PATCH", path, at(5), b"x", key=key)
    assert (answer.status, answer.code, answer.taken) == (409, "offset_conflict", 0)
    assert answer.headers["upload-offset"] == "0"


@pytest.mark.parametrize("algorithm", ["sha256", "sha1"])
async def test_checksum(acme: Any, key: str, archive: bytes, algorithm: str) -> None:
    path = await begin(acme, key, archive)

    def sealed(data: bytes) -> dict[str, str]:
        digest = base64.b64encode(hashlib.new(algorithm, data).digest()).decode()
        return {**at(0), "upload-checksum": f"{algorithm} {digest}"}

    damaged = await ask("PATCH", path, sealed(b"other"), archive[:900], key=key)
    assert (damaged.status, damaged.code) == (460, "checksum_mismatch")
    assert await offset(path, key) == 0
    cut = await ask("PATCH", path, sealed(archive[:900]), archive[:500], key=key, drops=True)
    assert cut.status == 0
    assert await offset(path, key) == 0, "half of what a checksum covers proves nothing"
    whole = await ask("PATCH", path, sealed(archive[:900]), archive[:500], archive[500:900], key=key)
    assert (whole.status, whole.headers["upload-offset"]) == (204, "900")


async def test_one_sender_at_a_time(acme: Any, key: str, archive: bytes) -> None:
    path = await begin(acme, key, archive)
    upload = await run_db(Upload.objects.get)
    with Transfer(Path(upload.folder)):
        for method, headers in (("PATCH", at(0)), ("DELETE", TUS)):
            answer = await ask(method, path, headers, b"x", key=key)
            assert (answer.status, answer.code, answer.taken) == (423, "upload_busy", 0)
        with pytest.raises(UploadBusyError):
            Transfer(Path(upload.folder))


async def test_termination(acme: Any, key: str, lorikeet: Any, archive: bytes) -> None:
    path = await begin(acme, key, archive)
    await ask("PATCH", path, at(0), b"x", key=key)
    assert (await ask("DELETE", path, TUS, key=key)).status == 204
    assert [file for file in lorikeet.artifacts.rglob("*") if file.is_file()] == []
    for method, headers in (("HEAD", TUS), ("PATCH", at(1)), ("DELETE", TUS)):
        assert (await ask(method, path, headers, key=key)).status == 410
    actions = await run_db(lambda: list(AuditEvent.objects.order_by("pk").values_list("action", flat=True)))
    assert actions[-2:] == ["upload.begin", "upload.cancelled"]


async def test_refused_before_a_byte(acme: Any, globex: Any, key: str, archive: bytes) -> None:
    path = await begin(acme, key, archive)
    foreign = (await run_db(globex.key))[1]
    weak = (await run_db(acme.key, role=Role.VIEWER))[1]
    own_path = path.replace("/acme/", "/globex/")
    for caller, address, status in (
        ("", path, 401), ("lk_abcdefgh_wrong", path, 401), (foreign, path, 404), (weak, path, 403),
        (foreign, own_path, 404),
    ):  # fmt: skip
        for method, headers in (("PATCH", at(0)), ("HEAD", TUS), ("DELETE", TUS)):
            answer = await ask(method, address, headers, b"x" * 100, key=caller)
            assert (answer.status, answer.taken) == (status, 0), (method, caller)
    assert await offset(path, key) == 0


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"tus-resumable": "0.2.2"}, 412, "tus_version"),
        ({"upload-length": "many"}, 400, "bad_header"),
        ({"upload-length": "0"}, 400, "empty_upload"),
        ({"upload-length": str(1 << 40)}, 413, "upload_too_large"),
        ({"upload-metadata": metadata(adapter="Not A Name", filename="a.zip")}, 400, "bad_metadata"),
        ({"upload-metadata": metadata(adapter="support", filename="a.bin")}, 400, "bad_metadata"),
        ({"upload-metadata": "adapter %%%"}, 400, "bad_metadata"),
        ({"upload-checksum": "md5 AAAA"}, 400, "bad_checksum_header"),
        ({"content-type": "text/plain"}, 415, "unsupported_media_type"),
    ],
)
async def test_bad_creation(acme: Any, key: str, change: dict[str, str], status: int, code: str) -> None:
    answer = await ask("POST", acme.path("uploads/resumable"), {**creation(10), **change}, b"x" * 10, key=key)
    assert (answer.status, answer.code, answer.taken) == (status, code, 0)
    assert not await run_db(Upload.objects.exists)


async def test_more_than_announced(acme: Any, key: str) -> None:
    path = await begin(acme, key, b"x" * 10)
    answer = await ask("PATCH", path, at(0), b"x" * 11, key=key)
    assert (answer.status, answer.code) == (413, "beyond_length")
    assert await offset(path, key) == 0


async def test_abilities() -> None:
    answer = await ask("OPTIONS", "/api/tenants/acme/uploads/resumable", {})
    assert answer.status == 204
    assert "creation-with-upload" in answer.headers["tus-extension"]
    assert answer.headers["tus-checksum-algorithm"] == "sha256,sha1"


async def test_complete_but_not_said(acme: Any, key: str, queue: Any, archive: bytes) -> None:
    """The process died between the last byte and its row."""
    path = await begin(acme, key, archive)
    upload = await run_db(Upload.objects.get)
    with Transfer(Path(upload.folder)) as transfer:
        transfer.write([archive])
        transfer.keep()
    await run_db(tend_arriving)
    await run_db(tend_arriving)
    assert queue.names() == ["validate_next"]
    assert await offset(path, key) == len(archive)


async def test_expires_when_nobody_goes_on(acme: Any, key: str, lorikeet: Any, archive: bytes) -> None:
    path = await begin(acme, key, archive)
    await ask("PATCH", path, at(0), b"x", key=key)
    upload = await run_db(Upload.objects.get)
    old = timezone.now() - timedelta(seconds=lorikeet.upload_expire_s + 60)
    await run_db(Upload.objects.filter(pk=upload.pk).update, created_at=old)
    await run_db(tend_arriving)
    assert await offset(path, key) == 1, "bytes came lately"
    os.utime(Path(upload.folder) / "offset", (old.timestamp(), old.timestamp()))
    await run_db(tend_arriving)
    assert (await ask("HEAD", path, TUS, key=key)).status == 410
    assert not Path(upload.folder).exists()


async def test_sweep_leaves_arriving_alone(acme: Any, key: str, archive: bytes) -> None:
    path = await begin(acme, key, archive)
    await ask("PATCH", path, at(0), b"x", key=key)
    upload = await run_db(Upload.objects.get)
    os.utime(upload.folder, (0, 0))
    assert await run_db(uploads.sweep) == 0
    assert await offset(path, key) == 1


def test_bytes_that_were_never_acknowledged_are_written_over(tmp_path: Path) -> None:
    with Transfer(tmp_path) as transfer:
        transfer.write([b"good"])
        transfer.keep()
        transfer.write([b"lost in a crash"])
    with Transfer(tmp_path) as transfer:
        assert transfer.offset == 4
        transfer.write([b"!"])
        transfer.keep()
    assert acknowledged(tmp_path) == 5
    assert (tmp_path / "0").read_bytes()[:5] == b"good!"


# -- a real server -----------------------------------------------------------------------------------------------------


@pytest.fixture
def web(tmp_path: Path) -> Iterator[WebProcess]:
    process = WebProcess(tmp_path / "web", f"local=unix:{tmp_path}/none.sock")
    process.seed()
    process.start()
    yield process
    if process.process is not None:
        process.kill()


def test_killed_in_the_middle(web: WebProcess) -> None:
    """kill -9 while bytes flow: what was acknowledged is there after the restart, and the rest follows."""
    slug, access = next(iter(web.tenants.items()))
    data, sent = os.urandom(KEEP_EVERY + (16 << 20)), KEEP_EVERY + (12 << 20)

    def call(method: str, path: str, headers: dict[str, str], content: bytes = b"") -> httpx.Response:
        with_key = {**access.bearer, **headers}
        return httpx.request(method, web.url + path, headers=with_key, content=content, trust_env=False, timeout=60)

    created = call("POST", f"/api/tenants/{slug}/uploads/resumable", creation(len(data)))
    assert created.status_code == 201, created.text
    path = created.headers["location"]
    said = call("PATCH", path, at(0), data[: 1 << 20])
    assert said.headers["upload-offset"] == str(1 << 20)
    with socket.create_connection(("127.0.0.1", web.port)) as connection:
        head = "".join(f"{name}: {value}\r\n" for name, value in {**access.bearer, **at(1 << 20)}.items())
        length = len(data) - (1 << 20)
        head += f"host: localhost\r\ncontent-length: {length}\r\n"
        connection.sendall(f"PATCH {path} HTTP/1.1\r\n{head}\r\n".encode())
        connection.sendall(data[1 << 20 : sent])
        enough = KEEP_EVERY + (2 << 20)
        eventually(lambda: any(f.stat().st_size > enough for f in web.var.rglob("uploads/*/0")), what="bytes on disk")
        web.kill()
    web.start()
    kept = int(call("HEAD", path, TUS).headers["upload-offset"])
    assert 1 << 20 <= kept <= sent
    assert kept >= KEEP_EVERY, "whole stretches count without the end of their request"
    rest = call("PATCH", path, at(kept), data[kept:])
    assert rest.status_code == 204, rest.text
    stored = next(web.var.rglob("uploads/*/0"), None)
    if stored is not None:  # the worker may be done with it
        assert hashlib.sha256(stored.read_bytes()).digest() == hashlib.sha256(data).digest()


def test_killed_while_it_is_checked(tmp_path: Path, archive: bytes) -> None:
    """kill -9 in the middle of validation: after the restart there is one version, whole and on its host."""
    with contextlib.closing(FakeEngineThread(f"unix:{tmp_path}/e.sock")) as engine:
        web = WebProcess(tmp_path / "web", f"local={engine.engine.address}")
        web.seed()
        web.start()
        try:
            access = web.tenants["acme"]
            web.wait_until_ready("support")
            headers = {**access.bearer, **creation(len(archive), adapter="fresh"), "content-type": BODY["content-type"]}
            url = f"{web.url}/api/tenants/acme/uploads/resumable"
            created = httpx.post(url, headers=headers, content=archive, trust_env=False, timeout=30)
            assert created.status_code == 201, created.text
            states = "SELECT state FROM uploads_upload"
            # Half a second later it is over: a kill that comes so late finds it accepted, and all of the rest holds.
            eventually(lambda: web.query(states) != [{"state": "received"}], what="the check has begun")
            web.kill()
            web.start()
            eventually(lambda: web.query(states) == [{"state": "accepted"}], 40, what="the upload is decided")
            web.wait_until_ready("fresh")
            whose = "adapter_id = (SELECT id FROM registry_adapter WHERE name = 'fresh')"
            (version,) = web.query(f"SELECT digest, state FROM registry_adapterversion WHERE {whose}")
            assert version["state"] == "ready"
            # A kill between the decision and its end leaves what was unpacked to the hourly sweep.
            root = web.var / "artifacts"
            files = [path for path in root.rglob("*") if path.is_file()]
            kept = [path for path in files if path.relative_to(root).parts[0] not in ("uploads", "incoming")]
            assert [path.parent.name for path in kept] == [version["digest"].removeprefix("sha256:")] * 2
        finally:
            if web.process is not None:
                web.kill()
