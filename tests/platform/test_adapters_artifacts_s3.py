"""The artifact store in a bucket, against a real server over HTTP, up to what a host does with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from lorikeet_testing.bucket import bucket
from lorikeet_testing.peft_files import adapter_files

from control_plane.adapters.artifacts import artifact_gc, s3
from control_plane.adapters.artifacts.s3 import BucketError, S3Store
from control_plane.adapters.artifacts.store import ArtifactDamagedError
from control_plane.adapters.registry.archiving import delete_version
from control_plane.adapters.registry.models import Alias
from control_plane.adapters.uploads.models import UploadState
from control_plane.core.config import Settings, SettingsError
from control_plane.fleet.hosts.models import EngineHost
from control_plane.fleet.placements.models import Placement
from control_plane.fleet.placements.tasks import stage_request
from control_plane.fleet.transport.errors import HostError
from lora_engine.adapters import download
from lora_engine.peft_format import CONFIG_FILE, WEIGHTS_FILE, adapter_digest, folder_digests
from lora_engine.wire import engine_pb2 as pb


@pytest.fixture
def url() -> Iterator[str]:
    s3.bucket_client.cache_clear()
    with bucket() as address:
        yield address
    s3.bucket_client.cache_clear()


@pytest.fixture
def store(url: str) -> S3Store:
    return S3Store(url, signed_s=60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    source.mkdir()
    for name, content in adapter_files().items():
        (source / name).write_bytes(content)
    return source


def digest_of(folder: Path) -> str:
    return adapter_digest(folder_digests(folder))


def test_put_and_remove(store: S3Store, folder: Path, url: str) -> None:
    digest = digest_of(folder)
    assert not store.has(digest)
    store.put(folder, folder_digests(folder))
    assert store.has(digest)
    assert store.uri(digest) == f"{url}/sha256/{digest[7:9]}/{digest[7:]}"
    store.put(folder, folder_digests(folder))
    assert list(store.digests()) == [digest]
    store.remove(digest)
    store.remove(digest)
    assert not store.has(digest)
    assert list(store.digests()) == []


def test_in_parts(store: S3Store, folder: Path, tmp_path: Path) -> None:
    (folder / WEIGHTS_FILE).write_bytes(os.urandom(2 * s3.PART_BYTES + 5))
    digest = digest_of(folder)
    store.put(folder, folder_digests(folder))
    assert fetched(store, digest, folder, tmp_path / "into") == digest


def fetched(store: S3Store, digest: str, folder: Path, into: Path) -> str:
    """As an engine host fetches it: signed addresses, no credentials."""
    into.mkdir()
    request = pb.StageAdapterRequest(
        digest=digest,
        source_uri=store.uri(digest),
        file_digests=folder_digests(folder),
        file_uris=store.file_uris(digest),
    )
    download.fetch(request, into, 1 << 30, lambda done, total: None)
    return digest_of(into)


def test_damage_on_the_way_leaves_nothing(store: S3Store, folder: Path) -> None:
    validated = folder_digests(folder)
    (folder / WEIGHTS_FILE).write_bytes(b"changed after it was validated")
    with pytest.raises(ArtifactDamagedError):
        store.put(folder, validated)
    assert list(store.digests()) == []


def test_cut_short_between_the_files(store: S3Store, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest, real = digest_of(folder), S3Store._send

    def dies(self: S3Store, file: Path, path: str) -> None:
        if file.name == CONFIG_FILE:
            raise SystemExit
        real(self, file, path)

    monkeypatch.setattr(S3Store, "_send", dies)
    with pytest.raises(SystemExit):
        store.put(folder, folder_digests(folder))
    assert not store.has(digest)
    assert list(store.digests()) == [digest], "the collector finds it"
    monkeypatch.undo()
    store.put(folder, folder_digests(folder))
    assert store.has(digest)


def test_away(store: S3Store, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    s3.bucket_client.cache_clear()
    gone = S3Store("s3://adapters/elsewhere", 60)
    with pytest.raises(BucketError) as caught:
        gone.put(folder, folder_digests(folder))
    assert "\n" not in str(caught.value)


def test_url(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LORIKEET_VAR_DIR", str(tmp_path))
    monkeypatch.setenv("LORIKEET_ARTIFACT_URL", "https://bucket.example.org")
    with pytest.raises((SettingsError, ValueError), match="s3://bucket/prefix"):
        Settings()


@pytest.fixture
def in_bucket(settings: Any, lorikeet: Any, url: str) -> S3Store:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"artifact_url": url})
    return S3Store(url, 60)


@pytest.mark.django_db
def test_from_upload_to_host_and_away(acme: Any, in_bucket: S3Store, upload: Any, tmp_path: Path) -> None:
    decided = upload(acme)
    assert (decided.state, decided.reason) == (UploadState.ACCEPTED, None)
    request = stage_request(Placement(host=EngineHost(), version=decided.version), None)
    assert request.source_uri.startswith("s3://")
    assert "X-Amz-Signature=" in request.file_uris[WEIGHTS_FILE]
    (tmp_path / "into").mkdir()
    download.fetch(request, tmp_path / "into", 1 << 30, lambda done, total: None)
    assert sum(path.stat().st_size for path in (tmp_path / "into").iterdir()) == decided.version.bytes
    Alias.objects.all().delete()
    delete_version(acting=acme.principal(), version=decided.version)
    assert artifact_gc.collect(timedelta(0)) == 1
    assert list(in_bucket.digests()) == []


@pytest.mark.django_db
def test_bucket_away_while_staging(acme: Any, in_bucket: S3Store, upload: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    version = upload(acme).version
    monkeypatch.setattr(S3Store, "file_uris", lambda *_: (_ for _ in ()).throw(OSError("no answer")))
    with pytest.raises(HostError) as caught:
        stage_request(Placement(host=EngineHost(), version=version), None)
    assert (caught.value.code, caught.value.retry_after_s) == ("artifact_store_unavailable", 5.0)
