"""Disks that are full, read-only or broken: clear errors, nothing lost, and everything goes on when they are mended."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone
from lorikeet_testing.peft_files import adapter_files
from lorikeet_testing.platform_fixtures import spool
from lorikeet_testing.small_disk import Disk, PretendedDisk, small_disk
from lorikeet_testing.tus_requests import TUS, Answer, ask, at, creation
from obstore.exceptions import BaseError

from control_plane.adapters.artifacts.s3 import BucketError
from control_plane.adapters.registry.upload_bounds import largest_upload_bytes
from control_plane.adapters.uploads.actions import MAX_ATTEMPTS, receive_upload
from control_plane.adapters.uploads.asgi import Handler
from control_plane.adapters.uploads.authorization import authorize_upload
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.adapters.uploads.partial_file import Transfer, acknowledged
from control_plane.adapters.uploads.resumable import begin_resumable, tend_arriving
from control_plane.adapters.uploads.spool import require_room
from control_plane.adapters.uploads.validation_job import validate_next
from control_plane.core.db import run_db
from control_plane.core.http.body_guard import BodyGuard
from lora_engine.adapters.disk_tier import DiskTier
from lora_engine.adapters.download import fetch
from lora_engine.errors import StageError
from lora_engine.peft_format import adapter_digest, folder_digests
from lora_engine.server.journal import JournalError, UsageJournal
from lora_engine.wire import engine_pb2 as pb


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk") as made:
        yield made


def refuse(errno_: int) -> Any:
    def refused(*_args: Any, **_kwargs: Any) -> Any:
        raise OSError(errno_, os.strerror(errno_))

    return refused


# -- uploads over HTTP ------------------------------------------------------------------------------------------------


@pytest.fixture
def artifacts(disk: Disk, settings: Any) -> Path:
    """The artifact folder, on a disk that can be full."""
    folder = disk.folder / "artifacts"
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"artifact_dir": folder})
    return folder


@pytest.fixture
def key(acme: Any) -> str:
    return str(acme.key()[1])


def is_refused(answer: Answer, status: int = 507, code: str = "storage_full") -> bool:
    error = json.loads(answer.body)["error"]
    assert (answer.status, error["code"]) == (status, code), answer.body
    assert error["message"]
    assert error["fix"]
    assert int(answer.headers["retry-after"]) > 0
    return True


async def begun(acme: Any, key: str, size: int) -> str:
    answer = await ask("POST", acme.path("uploads/resumable"), creation(size), key=key)
    assert answer.status == 201, answer.body
    return answer.headers["location"]


async def offset(path: str, key: str) -> int:
    return int((await ask("HEAD", path, TUS, key=key)).headers["upload-offset"])


@pytest.mark.django_db(transaction=True)
async def test_a_resumable_upload_goes_on_when_there_is_room(
    acme: Any, key: str, queue: Any, artifacts: Path, disk: Disk
) -> None:
    data = os.urandom(2 << 20)
    path = await begun(acme, key, len(data))
    first = await ask("PATCH", path, at(0), data[:1000], key=key)
    assert first.status == 204
    disk.fill(leave=300_000)
    assert is_refused(await ask("PATCH", path, at(1000), data[1000:], key=key))
    kept = await offset(path, key)
    assert kept >= 1000, "what was acknowledged stays"
    assert kept > 100_000 or isinstance(disk, PretendedDisk), "what the disk still took counts"
    assert is_refused(await ask("PATCH", path, at(kept), data[kept:], key=key)), "again, while there is none"
    disk.free()
    assert (await ask("PATCH", path, at(kept), data[kept:], key=key)).status == 204
    assert queue.names() == ["validate_next"]
    upload = await run_db(Upload.objects.get)
    assert (Path(upload.folder) / "0").read_bytes() == data


@pytest.mark.django_db(transaction=True)
async def test_bytes_under_a_checksum_count_all_or_none(acme: Any, key: str, artifacts: Path, disk: Disk) -> None:
    data = os.urandom(2 << 20)
    path = await begun(acme, key, len(data))
    disk.fill(leave=300_000)
    sealed = {**at(0), "upload-checksum": "sha256 " + base64.b64encode(hashlib.sha256(data).digest()).decode()}
    assert is_refused(await ask("PATCH", path, sealed, data, key=key))
    disk.free()
    assert await offset(path, key) == 0
    assert (await ask("PATCH", path, sealed, data, key=key)).status == 204


@pytest.mark.django_db(transaction=True)
async def test_no_upload_begins_on_a_full_disk(acme: Any, key: str, queue: Any, artifacts: Path, disk: Disk) -> None:
    disk.fill()
    assert is_refused(await ask("POST", acme.path("uploads/resumable"), creation(1000), key=key))
    with_body = {**creation(1000), "content-type": "application/offset+octet-stream"}
    assert is_refused(await ask("POST", acme.path("uploads/resumable"), with_body, b"x" * 1000, key=key))
    assert not await run_db(Upload.objects.exists)
    disk.free()
    await begun(acme, key, 1000)


@pytest.mark.django_db(transaction=True)
async def test_a_creation_whose_bytes_the_disk_refuses(
    acme: Any, key: str, artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sender does not know its address, so it must not stay among the unfinished ones."""
    monkeypatch.setattr(os, "pwrite", refuse(errno.ENOSPC))
    with_body = {**creation(1000), "content-type": "application/offset+octet-stream"}
    assert is_refused(await ask("POST", acme.path("uploads/resumable"), with_body, b"x" * 1000, key=key))
    upload = await run_db(Upload.objects.get)
    assert (upload.state, upload.reason["code"]) == (UploadState.CANCELLED, "storage_full")


@pytest.mark.parametrize(
    ("code", "status"), [(errno.EDQUOT, 507), (errno.EIO, 503), (errno.EROFS, 503), (errno.ESTALE, 503)]
)
@pytest.mark.parametrize("call", ["pwrite", "fdatasync", "open"])
@pytest.mark.django_db(transaction=True)
async def test_a_disk_that_fails(
    acme: Any, key: str, artifacts: Path, monkeypatch: pytest.MonkeyPatch, code: int, status: int, call: str
) -> None:
    path = await begun(acme, key, 2000)
    assert (await ask("PATCH", path, at(0), b"x" * 1000, key=key)).status == 204
    with monkeypatch.context() as broken:
        broken.setattr(os, call, refuse(code))
        answer = await ask("PATCH", path, at(1000), b"y" * 1000, key=key)
    assert is_refused(answer, status, "storage_full" if status == 507 else "storage_unavailable")
    assert await offset(path, key) == 1000
    assert (await ask("PATCH", path, at(1000), b"z" * 1000, key=key)).status == 204
    upload = await run_db(Upload.objects.get)
    assert (Path(upload.folder) / "0").read_bytes() == b"x" * 1000 + b"z" * 1000


@pytest.mark.parametrize("text", [b"", b"00000", b"000000000000000000x7", b"9" * 25])
def test_an_offset_that_is_damaged(tmp_path: Path, text: bytes) -> None:
    """Nothing counts as sent then: the client is told so, and begins anew."""
    (tmp_path / "offset").write_bytes(text)
    assert acknowledged(tmp_path) == 0
    with Transfer(tmp_path) as transfer:
        transfer.write([b"good"])
        transfer.keep()
    assert acknowledged(tmp_path) == 4


def test_after_a_failed_flush_nothing_of_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system reports it once; the next flush succeeds although the bytes are lost."""
    with Transfer(tmp_path) as transfer:
        transfer.write([b"good"])
        transfer.keep()
        transfer.write([b"lost"])
        with monkeypatch.context() as broken:
            broken.setattr(os, "fdatasync", refuse(errno.EIO))
            with pytest.raises(OSError, match="output"):
                transfer.keep()
        transfer.keep()
    assert acknowledged(tmp_path) == 4


@pytest.mark.django_db
def test_a_form_that_does_not_fit(acme: Any, artifacts: Path, disk: Disk) -> None:
    form = {"name": "support", "files": [SimpleUploadedFile("adapter_config.json", bytes(1000))]}
    disk.fill()
    answer = acme.client().post(acme.path("uploads"), form, format="multipart")
    assert (answer.status_code, answer.json()["error"]["code"]) == (507, "storage_full")
    assert answer["retry-after"]
    disk.free()
    assert not Upload.objects.exists()
    assert [path for path in disk.folder.rglob("*") if path.is_file()] == []


@pytest.mark.django_db(transaction=True)
async def test_a_form_is_refused_before_its_body(acme: Any, key: str, artifacts: Path, disk: Disk) -> None:
    async def never(*_: Any) -> None:
        raise AssertionError("Django read the body")

    disk.fill()
    headers = {"content-type": "multipart/form-data; boundary=x", "content-length": "1000"}
    assert is_refused(
        await ask(
            "POST",
            acme.path("uploads"),
            headers,
            b"x" * 1000,
            key=key,
            app=BodyGuard(never, authorize_upload, require_room, largest_upload_bytes),
        )
    )


@pytest.mark.django_db(transaction=True)
async def test_other_calls_need_no_artifact_disk(acme: Any, key: str, artifacts: Path) -> None:
    """The folder is not even there: a share that is not mounted."""
    artifacts.parent.chmod(0o755)
    artifacts.write_bytes(b"")
    answer = await ask("GET", acme.path("uploads"), {}, key=key, app=Handler())
    assert answer.status == 200
    assert is_refused(
        await ask("POST", acme.path("uploads/resumable"), creation(1000), key=key), 503, "storage_unavailable"
    )


# -- the check of an upload -------------------------------------------------------------------------------------------


@pytest.fixture
def waiting(acme: Any, host: Any, queue: Any, committing: Any, in_process: None, artifacts: Path) -> Upload:
    """An upload that a worker has not seen yet."""
    files = [spool(name, content) for name, content in adapter_files().items()]
    with committing():
        return receive_upload(acting=acme.principal(), name="support", description="", files=files)


def decided(upload: Upload) -> Upload:
    """Let a worker look at it, and the time of its rest be over."""
    assert validate_next()
    upload.refresh_from_db()
    assert upload.claim is None
    if upload.state == UploadState.RECEIVED:
        assert not validate_next(), "it rests for a while"
        Upload.objects.update(claimed_until=None)
    return upload


@pytest.mark.django_db
def test_a_valid_upload_waits_for_room(waiting: Upload, disk: Disk, committing: Any) -> None:
    disk.fill()
    for _ in range(MAX_ATTEMPTS + 1):
        assert decided(waiting).state == UploadState.RECEIVED
        assert waiting.reason["code"] == "storage_full"
        assert waiting.reason["fix"]
        assert waiting.attempts == 0, "no fault of the files"
    disk.free()
    with committing():
        assert decided(waiting).state == UploadState.ACCEPTED


# ENOMEM of the child process is its memory limit, with which an upload is refused (`test_adapters_uploads.py`).
@pytest.mark.parametrize(
    ("call", "code"),
    [
        (call, code)
        for call, code in product(
            ["unpack_upload", "fork", "put", "fsync", "sync_folder"],
            [errno.ENOSPC, errno.EIO, errno.EROFS, errno.ENOMEM],
        )
        if (call, code) != ("unpack_upload", errno.ENOMEM)
    ],
)
@pytest.mark.django_db
def test_each_step_can_be_refused(
    waiting: Upload, committing: Any, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    places = {
        "unpack_upload": "lora_engine.peft_format.unpack_upload",
        "fork": "control_plane.adapters.uploads.validation_job.start_child",
        "put": "control_plane.adapters.artifacts.store.FolderStore.put",
        "fsync": "os.fsync",
        "sync_folder": "control_plane.adapters.artifacts.store.sync_folder",
    }
    with monkeypatch.context() as broken:
        broken.setattr(places[call], refuse(code))
        assert decided(waiting).state == UploadState.RECEIVED
    assert waiting.reason["code"] == ("storage_full" if code == errno.ENOSPC else "storage_unavailable")
    with committing():
        assert decided(waiting).state == UploadState.ACCEPTED


@pytest.mark.django_db
def test_a_bucket_that_does_not_answer(waiting: Upload, committing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Away:
        def put(self, *_: object) -> None:
            raise BucketError(BaseError("403 Forbidden for s3://secret-name"))

    with monkeypatch.context() as broken:
        broken.setattr("control_plane.adapters.uploads.validation_job.artifact_store", Away)
        assert decided(waiting).reason["code"] == "storage_unavailable"
        assert "secret-name" not in str(waiting.reason)
    with committing():
        assert decided(waiting).state == UploadState.ACCEPTED


@pytest.mark.django_db
def test_what_waits_too_long_is_given_up(waiting: Upload, disk: Disk, lorikeet: Any, committing: Any) -> None:
    Upload.objects.update(created_at=timezone.now() - timedelta(seconds=lorikeet.upload_expire_s + 1))
    disk.fill()
    with committing():
        assert decided(waiting).state == UploadState.REFUSED
    assert waiting.reason["code"] == "storage_full"
    assert waiting.reason["fix"].startswith("Upload again.")
    assert not Path(waiting.folder).exists()


@pytest.mark.django_db
def test_content_that_the_disk_damaged_is_mended_by_the_same_upload(upload: Any, acme: Any, artifacts: Path) -> None:
    version = upload(acme).version
    (weights,) = artifacts.rglob("sha256/*/*/*.safetensors")
    good = weights.read_bytes()
    weights.chmod(0o644)
    weights.write_bytes(b"\0" * len(good))
    again = upload(acme)
    assert again.version == version
    assert weights.read_bytes() == good


@pytest.mark.django_db
def test_a_broken_folder_does_not_stop_the_others_from_being_tended(
    acme: Any, queue: Any, artifacts: Path, committing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = {"acting": acme.principal(), "description": "", "file_name": "a.tar", "size": 4}
    broken, whole = (begin_resumable(name=name, **begin) for name in ("broken", "whole"))
    with Transfer(Path(whole.folder)) as transfer:
        transfer.write([b"data"])
        transfer.keep()
    read = acknowledged

    def refusing(folder: Path) -> int:
        return refuse(errno.EIO)() if str(broken.pk) in str(folder) else read(folder)

    monkeypatch.setattr("control_plane.adapters.uploads.partial_file.acknowledged", refusing)
    with committing():
        tend_arriving()
    assert dict(Upload.objects.values_list("adapter_name", "state")) == {"broken": "arriving", "whole": "received"}


# -- the engine's copies of adapters ----------------------------------------------------------------------------------


def artifact_in(folder: Path, seed: int = 0) -> pb.StageAdapterRequest:
    folder.mkdir()
    for name, content in adapter_files(seed=seed).items():
        (folder / name).write_bytes(content)
    digests = folder_digests(folder)
    return pb.StageAdapterRequest(digest=adapter_digest(digests), source_uri=folder.as_uri(), file_digests=digests)


def add(tier: DiskTier, artifact: pb.StageAdapterRequest) -> None:
    with tier.adding(artifact.digest) as folder:
        fetch(artifact, folder, 1 << 30, lambda _done, _total: None)


def test_an_adapter_that_does_not_fit(tmp_path: Path, disk: Disk) -> None:
    tier = DiskTier(disk.folder / "tier", 1 << 30)
    artifact = artifact_in(tmp_path / "store")
    disk.fill()
    with pytest.raises(StageError) as caught:
        add(tier, artifact)
    assert (caught.value.code, caught.value.passes) == ("disk_error", True)
    assert caught.value.fix
    disk.free()
    assert [path for path in disk.folder.rglob("*") if path.is_file()] == [], "half an adapter stays nowhere"
    add(tier, artifact)
    tier.verify(artifact.digest)


def test_what_a_host_has_is_served_from_a_full_disk(tmp_path: Path, disk: Disk) -> None:
    artifact = artifact_in(tmp_path / "store")
    add(DiskTier(disk.folder / "tier", 1 << 30), artifact)
    tier = DiskTier(disk.folder / "tier", 1 << 30)
    disk.fill()
    tier.verify(artifact.digest)
    with tier.reading(artifact.digest) as folder:
        assert len(list(folder.iterdir())) == 2
    assert tier.remove(artifact.digest)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EIO, errno.EDQUOT])
def test_a_disk_that_refuses_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It still gives what it has, and what cannot be removed is forgotten."""
    artifact, other = artifact_in(tmp_path / "store"), artifact_in(tmp_path / "other", seed=1)
    tier = DiskTier(tmp_path / "tier", 1 << 30)
    add(tier, artifact)
    with monkeypatch.context() as broken:
        for name in ("utime", "mkdir", "rename"):
            broken.setattr(os, name, refuse(code))
        with tier.reading(artifact.digest) as folder:
            assert folder.is_dir()
        with pytest.raises(StageError, match="cannot be written"):
            add(tier, other)
        assert tier.has(artifact.digest)
        assert tier.remove(artifact.digest)
    assert not tier.has(artifact.digest)
    assert "cannot be removed" in caplog.text
    add(tier, artifact)
    tier.verify(artifact.digest)


def test_a_sector_that_cannot_be_read(tmp_path: Path) -> None:
    artifact = artifact_in(tmp_path / "store")
    tier = DiskTier(tmp_path / "tier", 1 << 30)
    add(tier, artifact)
    with pytest.raises(StageError) as caught, tier.reading(artifact.digest):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    assert (caught.value.code, caught.value.passes) == ("disk_error", True)


# -- the engine's journal of usage ------------------------------------------------------------------------------------


def record(request_id: str) -> pb.UsageRecord:
    return pb.UsageRecord(request_id=request_id, tenant="acme", prompt_tokens=3)


def append(journal: UsageJournal, *request_ids: str) -> None:
    written = threading.Event()
    journal.append([record(request_id) for request_id in request_ids], written.set)
    assert written.wait(10)


def pulled(journal: UsageJournal) -> list[str]:
    return [record.request_id for record in journal.pull(0, 0).result()]


def until(condition: Any) -> None:
    for _ in range(1000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never came to be")


def limit_pages(journal: UsageJournal, pages: int) -> None:
    """What a full disk answers, SQLITE_FULL, where none can be had."""
    journal._thread.submit(lambda: journal._db.execute(f"PRAGMA max_page_count = {pages}").fetchall()).result()


def test_the_journal_on_a_full_disk(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Usage stays in memory until there is room; what was refused does not block what follows."""
    monkeypatch.setattr("lora_engine.server.journal._RETRY_S", 0.02)
    journal = UsageJournal(disk.folder / "data" / "usage.sqlite3")
    append(journal, "before", "acknowledged")
    disk.fill()
    if isinstance(disk, PretendedDisk):
        limit_pages(journal, 1)
    else:
        with pytest.raises(sqlite3.Error, match="full"):
            journal.acknowledge(["acknowledged"]).result()
    while not journal.failing:  # SQLite has some room of its own
        append(journal, *(f"{len(journal)}-{n}" for n in range(50)))
    known = len(journal)
    disk.free()
    limit_pages(journal, 1 << 30)
    until(lambda: not journal.failing)
    assert journal.acknowledge(["acknowledged"]).result() == 1
    append(journal, "after")
    assert len(pulled(journal)) == len(journal) == known
    assert {"before", "2-49", "after"} <= set(pulled(journal))
    journal.close()


def test_a_journal_that_cannot_be_opened(tmp_path: Path, disk: Disk) -> None:
    disk.fill()
    with pytest.raises(JournalError, match="Free space"):
        UsageJournal(disk.folder / "data" / "usage.sqlite3")


def test_a_journal_that_is_no_database(tmp_path: Path) -> None:
    """It is put aside, and so is its log, which SQLite would replay into the new one."""
    path = tmp_path / "usage.sqlite3"
    path.write_bytes(b"SQLite format 3\0" + os.urandom(8000))
    path.with_name("usage.sqlite3-wal").write_bytes(b"left over")
    journal = UsageJournal(path)
    append(journal, "new")
    assert pulled(journal) == ["new"]
    journal.close()
    assert list(tmp_path.glob("*.damaged-*"))


def test_one_damaged_record_is_not_in_the_way_of_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "usage.sqlite3"
    journal = UsageJournal(path)
    append(journal, "first", "damaged", "last")
    with sqlite3.connect(path) as db:
        db.execute("UPDATE usage SET record = ? WHERE request_id = 'damaged'", (b"\x0a\xff",))
    db.close()
    assert pulled(journal) == ["first", "last"]
    assert [record.request_id for record in journal.pull(1, 1).result()] == ["last"]
    assert "damaged" not in journal
    assert "the usage of request damaged" in caplog.text
    journal.close()
