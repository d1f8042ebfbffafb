"""The artifact store: complete or absent, and the bytes it was given."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from pathlib import Path

import pytest
from lorikeet_testing.peft_files import adapter_files

from control_plane.adapters.artifacts.store import ArtifactDamagedError, FolderStore
from lora_engine.peft_format import WEIGHTS_FILE, adapter_digest, folder_digests


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    source.mkdir()
    for name, content in adapter_files().items():
        (source / name).write_bytes(content)
    return source


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "store")


def files(store: FolderStore) -> list[Path]:
    return sorted(path for path in store.root.rglob("*") if path.is_file())


def test_put(store: FolderStore, folder: Path) -> None:
    digest = adapter_digest(folder_digests(folder))
    store.put(folder, folder_digests(folder))
    assert store.has(digest)
    assert store.uri(digest) == f"file://{store.root}/sha256/{digest[7:9]}/{digest[7:]}"
    assert folder_digests(Path(store.uri(digest).removeprefix("file://"))) == folder_digests(folder)
    store.put(folder, folder_digests(folder))
    assert len(files(store)) == 2


@pytest.mark.parametrize("links", [True, False])
def test_what_lies_on_the_same_file_system_is_not_copied(
    store: FolderStore, folder: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "another file system")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    validated = folder_digests(folder)
    store.put(folder, validated)
    kept = Path(store.uri(adapter_digest(validated)).removeprefix("file://")) / WEIGHTS_FILE
    assert kept.samefile(folder / WEIGHTS_FILE) == links
    shutil.rmtree(folder)
    assert folder_digests(kept.parent) == validated
    assert kept.stat().st_mode & 0o777 == 0o444


def test_damage_on_the_way_leaves_nothing(store: FolderStore, folder: Path) -> None:
    validated = folder_digests(folder)
    (folder / WEIGHTS_FILE).write_bytes(b"changed after it was validated")
    with pytest.raises(ArtifactDamagedError):
        store.put(folder, validated)
    assert not store.has(adapter_digest(validated))
    assert files(store) == []


def test_a_crash_in_the_middle_leaves_nothing_visible(
    store: FolderStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = adapter_digest(folder_digests(folder))
    monkeypatch.setattr(Path, "rename", lambda *args: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        store.put(folder, folder_digests(folder))
    assert not store.has(digest)
    assert files(store) == []


def test_at_once_from_many_threads(store: FolderStore, folder: Path) -> None:
    validated = folder_digests(folder)
    failures: list[BaseException] = []

    def put() -> None:
        try:
            store.put(folder, validated)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=put) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(files(store)) == 2
