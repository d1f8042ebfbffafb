from __future__ import annotations

import http.server
import os
import threading
from functools import partial
from pathlib import Path

import pytest

from lora_engine.adapters.disk_tier import DiskTier
from lora_engine.adapters.download import fetch
from lora_engine.errors import StageError
from lora_engine.wire import engine_pb2 as pb

BIG = 1 << 30


def quiet(_done: int, _total: int) -> None:
    pass


def add(tier: DiskTier, artifact: pb.StageAdapterRequest, max_bytes: int = BIG) -> None:
    with tier.adding(artifact.digest) as folder:
        fetch(artifact, folder, max_bytes, quiet)


def files_below(root):
    return [path for path in root.rglob("*") if path.is_file()]


def test_what_was_added_survives_a_restart(tmp_path, make_artifact):
    artifact = make_artifact()
    reports = []
    with DiskTier(tmp_path / "disk", BIG).adding(artifact.digest) as folder:
        fetch(artifact, folder, BIG, lambda done, total: reports.append((done, total)))
    assert reports[-1][0] == reports[-1][1] > 0
    tier = DiskTier(tmp_path / "disk", BIG)
    assert tier.has(artifact.digest)
    tier.verify(artifact.digest)
    with tier.reading(artifact.digest) as folder:
        assert (folder / "adapter_config.json").is_file()
    assert tier.used == sum(path.stat().st_size for path in files_below(tmp_path / "disk"))


def test_it_is_flushed_once_and_a_disk_that_refuses_is_told_of(tmp_path, make_artifact, monkeypatch, caplog):
    artifact, synced = make_artifact(), []
    tier = DiskTier(tmp_path / "disk", BIG)
    monkeypatch.setattr(os, "fsync", synced.append)
    add(tier, artifact)
    assert not synced, "nobody waits for the disk"
    for _ in range(2):
        tier.flush(artifact.digest)
    assert len(synced) == 4
    tier.flush("sha256:" + "0" * 64)

    def refuse(_file):
        raise OSError(28, "No space left on device")

    other = make_artifact(1)
    add(tier, other)
    monkeypatch.setattr(os, "fsync", refuse)
    tier.flush(other.digest)
    assert "may not outlast a power cut" in caplog.text
    assert tier.has(other.digest)


def test_half_done_work_of_a_crash_is_removed(tmp_path, make_artifact):
    root = tmp_path / "disk"
    (root / "incoming" / "x").mkdir(parents=True)
    (root / "incoming" / "x" / "adapter_config.json").write_text("{}")
    half = root / "sha256" / "ab" / ("ab" * 32)
    half.mkdir(parents=True)
    (half / "adapter_config.json").write_text("{}")
    tier = DiskTier(root, BIG)
    assert not tier.contents()
    assert list((root / "incoming").iterdir()) == []


def test_damage_on_disk_is_found_and_removed(tmp_path, make_artifact):
    artifact = make_artifact()
    add(DiskTier(tmp_path / "disk", BIG), artifact)
    tier = DiskTier(tmp_path / "disk", BIG)
    with tier.reading(artifact.digest) as folder:
        weights = folder / "adapter_model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    with pytest.raises(StageError) as caught:
        tier.verify(artifact.digest)
    assert caught.value.code == "disk_tier_damaged"
    assert not tier.has(artifact.digest)
    assert files_below(tmp_path / "disk") == []


def test_least_recently_used_goes_first_also_after_a_restart(tmp_path, make_artifact):
    artifacts = [make_artifact(i) for i in range(4)]
    size = 2 * (Path(artifacts[0].source_uri[7:], "adapter_model.safetensors").stat().st_size + 200)
    tier = DiskTier(tmp_path / "disk", 3 * size // 2)
    for at, artifact in enumerate(artifacts[:2]):
        add(tier, artifact)
        with tier.reading(artifact.digest) as folder:
            os.utime(folder, (at, at))
    with tier.reading(artifacts[0].digest):
        pass
    add(tier, artifacts[2])
    tier = DiskTier(tmp_path / "disk", size)
    tier.pin(artifacts[0].digest)
    add(tier, artifacts[3])
    assert tier.has(artifacts[0].digest) and tier.has(artifacts[3].digest)
    assert tier.used <= size
    tier.pin(artifacts[3].digest)
    with pytest.raises(StageError) as caught:
        add(tier, artifacts[1])
    assert caught.value.code == "disk_tier_full"
    assert caught.value.passes


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"digest": "sha256:" + "0" * 64}, "digest_mismatch"),
        ({"file_digests": {}}, "invalid_artifact"),
        ({"source_uri": "gopher://x"}, "invalid_artifact"),
        ({"source_uri": "file:///nowhere"}, "artifact_not_found"),
        ({"source_uri": "http://127.0.0.1:9/x"}, "artifact_unavailable"),
    ],
)
def test_bad_artifacts_leave_nothing_behind(tmp_path, make_artifact, change, code):
    good = make_artifact()
    fields = {"digest": good.digest, "source_uri": good.source_uri, "file_digests": good.file_digests} | change
    tier = DiskTier(tmp_path / "disk", BIG)
    with pytest.raises(StageError) as caught:
        add(tier, pb.StageAdapterRequest(**fields))
    assert caught.value.code == code
    assert caught.value.fix
    assert files_below(tmp_path / "disk") == []


def test_replaced_and_oversized_files_are_refused(tmp_path, make_artifact):
    artifact = make_artifact()
    tier = DiskTier(tmp_path / "disk", BIG)
    with pytest.raises(StageError) as caught:
        add(tier, artifact, 100)
    assert caught.value.code == "artifact_too_large"
    with Path(artifact.source_uri[7:], "adapter_config.json").open("a") as file:
        file.write(" ")
    with pytest.raises(StageError) as caught:
        add(tier, artifact)
    assert caught.value.code == "digest_mismatch"
    assert files_below(tmp_path / "disk") == []


class Store(http.server.SimpleHTTPRequestHandler):
    behaviour = "serve"

    def do_GET(self):
        if self.headers.get("Authorization") != "Bearer secret":
            self.send_error(403)
        elif self.behaviour == "redirect":
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:9/")
            self.end_headers()
        elif self.behaviour == "cut":
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            self.wfile.write(b"{}")
        else:
            super().do_GET()

    def log_message(self, *_arguments):
        pass


@pytest.fixture
def store(tmp_path):
    (tmp_path / "store").mkdir(exist_ok=True)
    handler = type("Handler", (Store,), {})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(tmp_path / "store")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield handler, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("behaviour", "token", "code"),
    [
        ("serve", "secret", ""),
        ("serve", "wrong", "artifact_unavailable"),
        ("redirect", "secret", "artifact_unavailable"),
        ("cut", "secret", "artifact_unavailable"),
    ],
)
def test_fetching_over_http(tmp_path, make_artifact, store, behaviour, token, code):
    handler, base = store
    handler.behaviour = behaviour
    local = make_artifact()
    headers = {"Authorization": f"Bearer {token}"}
    remote = pb.StageAdapterRequest(
        digest=local.digest, source_uri=f"{base}/0/", file_digests=local.file_digests, source_headers=headers
    )
    tier = DiskTier(tmp_path / "disk", BIG)
    if not code:
        add(tier, remote)
        assert tier.has(remote.digest)
    else:
        with pytest.raises(StageError) as caught:
            add(tier, remote)
        assert caught.value.code == code
        assert files_below(tmp_path / "disk") == []
