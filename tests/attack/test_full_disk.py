"""Disks that are full, read-only or broken: clear errors, nothing lost, and everything goes on when they are mended."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lorikeet_testing.peft_files import adapter_files
from lorikeet_testing.small_disk import Disk, PretendedDisk, small_disk

from lora_engine.adapters.artifact import Artifact
from lora_engine.adapters.disk_tier import DiskTier
from lora_engine.adapters.errors import StageError
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


# -- the engine's copies of adapters ----------------------------------------------------------------------------------


def artifact_in(folder: Path, seed: int = 0) -> Artifact:
    folder.mkdir()
    for name, content in adapter_files(seed=seed).items():
        (folder / name).write_bytes(content)
    digests = folder_digests(folder)
    return Artifact(adapter_digest(digests), folder.as_uri(), digests)


def add(tier: DiskTier, artifact: Artifact) -> None:
    tier.add(artifact, 1 << 30, lambda _done, _total: None)


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
