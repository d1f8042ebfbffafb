"""Uploads from the form to a version, and every bad upload refused with a fix and nothing left behind."""

from __future__ import annotations

import errno
import io
import os
import zipfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone
from lorikeet_testing import peft_files
from lorikeet_testing.peft_files import adapter_files, config_bytes, safetensors_bytes, tensors
from lorikeet_testing.platform_fixtures import ScriptedChild

from control_plane.adapters.artifacts import store
from control_plane.adapters.registry.models import Adapter, AdapterVersion, VersionState
from control_plane.adapters.uploads import actions as uploads
from control_plane.adapters.uploads import validation_job
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.adapters.uploads.tasks import validate_next
from control_plane.core.jobs import claims
from control_plane.fleet.hosts.models import EngineHost
from control_plane.fleet.placements.models import Placement
from control_plane.identity.audit.models import AuditEvent
from lora_engine.peft_format import CONFIG_FILE, WEIGHTS_FILE, adapter_digest, file_digest, folder_digests

pytestmark = pytest.mark.django_db


def post(org: Any, files: dict[str, bytes], name: str = "support", role: Any = None, **fields: str) -> Any:
    client = org.client(role) if role else org.client()
    form = [SimpleUploadedFile(file, content) for file, content in files.items()]
    return client.post(org.path("uploads"), {"name": name, "files": form, **fields}, format="multipart")


def artifacts(lorikeet: Any) -> list[Path]:
    return [path for path in (lorikeet.artifacts).rglob("*") if path.is_file()]


def test_form_to_version(acme: Any, host: EngineHost, queue: Any, committing: Any, events: Any, lorikeet: Any) -> None:
    with committing():
        answer = post(acme, adapter_files(), description="Answers customers")
    assert answer.status_code == 202
    assert answer.json()["state"] == "received"
    assert queue.names() == ["validate_next"]

    with committing():
        validation_job.validate_next()
    upload = acme.client().get(acme.path(f"uploads/{answer.json()['id']}")).json()
    assert upload["state"] == "accepted"
    assert upload["version"] == 1
    assert upload["report"]["ok"] is True
    assert upload["report"]["manifest"]["rank"] == 4
    assert [event for _, event, _ in events if event == "upload.updated"] == ["upload.updated"] * 3
    assert [data["state"] for _, event, data in events if event == "upload.updated"][-1] == "accepted"

    version = acme.client().get(acme.path("adapters/support/versions/1")).json()
    assert version["state"] == "staging"
    assert version["placements"][0]["host"] == "local"
    assert version["placements"][0]["phase"] == "queued"
    assert queue.names() == ["validate_next", "stage_next"]

    folder = lorikeet.artifacts / "sha256" / version["digest"][7:9] / version["digest"][7:]
    assert adapter_digest(folder_digests(folder)) == version["digest"]
    assert {path.parent for path in artifacts(lorikeet)} == {folder}, "the upload's own folder is gone"

    adapter = acme.client().get(acme.path("adapters/support")).json()
    assert adapter["description"] == "Answers customers"
    assert adapter["status"] == "staging"
    assert adapter["live_version"] is None


@pytest.mark.parametrize(
    "pack", [("a.zip", peft_files.zip_of), ("a.tar.gz", peft_files.tar_gz_of)], ids=["zip", "tar.gz"]
)
def test_archives(
    acme: Any, upload: Any, pack: tuple[str, Callable[[dict[str, bytes]], bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []

    def digest_of(path: Path) -> str:
        hashed.append(path.name)
        return file_digest(path)

    monkeypatch.setattr(store, "file_digest", digest_of)
    name, make = pack
    files = {f"my-adapter/{file}": content for file, content in adapter_files().items()}
    files |= {"my-adapter/README.md": b"# hello", "my-adapter/losses.csv": b"1,2"}
    decided = upload(acme, files={name: make(files)})
    assert decided.state == UploadState.ACCEPTED
    ignored = [note for note in decided.report["notes"] if "ignored" in note]
    assert len(ignored) == 1 and "losses.csv" in ignored[0]
    assert "README.md" not in ignored[0], "which every training writes"
    assert sorted(hashed) == [CONFIG_FILE, WEIGHTS_FILE], "each file is read once after its check"


def adalora() -> dict[str, bytes]:
    plain = tensors()
    made = {name.removesuffix(".weight"): values for name, values in plain.items()}
    ranks = {name: len(values) for name, values in made.items() if name.endswith("lora_A")}
    made |= {name[:-1] + "E": np.full((rank, 1), 0.5, dtype=np.float32) for name, rank in ranks.items()}
    config = config_bytes(peft_type="ADALORA", init_r=4)
    return {CONFIG_FILE: config, WEIGHTS_FILE: safetensors_bytes(made)}


def with_expressions() -> dict[str, bytes]:
    return {**adapter_files(), CONFIG_FILE: config_bytes(target_modules=r".*\.(q|v)_proj")}


@pytest.mark.parametrize("files", [adalora, with_expressions])
def test_what_is_kept_in_another_form_has_its_own_digests(
    acme: Any, upload: Any, lorikeet: Any, files: Callable[[], dict[str, bytes]]
) -> None:
    """Loose files are checked where they arrived; hosts ask for what was stored."""
    sent = files()
    decided = upload(acme, files=sent)
    assert decided.state == UploadState.ACCEPTED, decided.reason
    version = decided.version
    folder = lorikeet.artifacts / "sha256" / version.digest[7:9] / version.digest[7:]
    assert folder_digests(folder) == version.file_digests
    assert adapter_digest(version.file_digests) == version.digest
    assert version.bytes == sum(path.stat().st_size for path in folder.iterdir())
    assert (folder / CONFIG_FILE).read_bytes() != sent[CONFIG_FILE]


def test_same_content_reuses_the_version(acme: Any, upload: Any) -> None:
    first, second, other = upload(acme), upload(acme), upload(acme, seed=1)
    assert second.version == first.version
    assert second.reused_version
    assert second.reason["code"] == "same_content"
    assert other.version.number == 2
    assert AdapterVersion.objects.count() == 2


def test_same_content_of_two_tenants_is_two_versions(acme: Any, globex: Any, upload: Any) -> None:
    ours, theirs = upload(acme).version, upload(globex).version
    assert ours.digest == theirs.digest
    assert ours.pk != theirs.pk
    assert (ours.tenant, theirs.tenant) == (acme.tenant, globex.tenant)


def nan_tensors() -> dict[str, Any]:
    made = tensors()
    next(iter(made.values()))[0, 0] = np.nan
    return made


def without_one() -> dict[str, Any]:
    made = tensors()
    made.pop(next(reversed(made)))
    return made


def wrong_base() -> dict[str, Any]:
    return {name: np.zeros((array.shape[0], array.shape[1] + 8), np.float32) for name, array in tensors().items()}


def traversal_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in adapter_files().items():
            archive.writestr(f"../../{name}", content)
    return buffer.getvalue()


BAD: dict[str, dict[str, bytes]] = {
    "wrong base": {CONFIG_FILE: config_bytes(), WEIGHTS_FILE: safetensors_bytes(wrong_base())},
    "rank over the engine's limit": adapter_files(rank=65),
    "missing tensor": {CONFIG_FILE: config_bytes(), WEIGHTS_FILE: safetensors_bytes(without_one())},
    "extra tensor": {
        CONFIG_FILE: config_bytes(),
        WEIGHTS_FILE: safetensors_bytes({**tensors(), "surprise": np.zeros((2, 2), np.float32)}),
    },
    "NaN": {CONFIG_FILE: config_bytes(), WEIGHTS_FILE: safetensors_bytes(nan_tensors())},
    "pickle": {CONFIG_FILE: config_bytes(), "adapter_model.bin": b"\x80\x04cos\nsystem\n(S'true'\ntR."},
    "truncated": {CONFIG_FILE: config_bytes(), WEIGHTS_FILE: adapter_files()[WEIGHTS_FILE][:-100]},
    "huge header": {CONFIG_FILE: config_bytes(), WEIGHTS_FILE: b"\xff" * 64},
    "empty weights": {CONFIG_FILE: config_bytes(), WEIGHTS_FILE: b""},
    "config is no JSON": {**adapter_files(), CONFIG_FILE: b"{"},
    "DoRA without magnitudes": {**adapter_files(), CONFIG_FILE: config_bytes(use_dora=True)},
    "no config": {WEIGHTS_FILE: adapter_files()[WEIGHTS_FILE]},
    "traversal": {"a.zip": traversal_zip()},
    "bomb": {"a.zip": peft_files.zip_bomb()},
    "not an archive": {"a.zip": b"hello"},
    "archive and files": {"a.zip": peft_files.zip_of(adapter_files()), **adapter_files()},
}


@pytest.mark.parametrize("files", BAD.values(), ids=BAD.keys())
def test_bad_upload(
    acme: Any, host: EngineHost, queue: Any, committing: Any, lorikeet: Any, files: dict[str, bytes]
) -> None:
    with committing():
        answer = post(acme, files)
        assert answer.status_code == 202
        validation_job.validate_next()
    upload = acme.client().get(acme.path(f"uploads/{answer.json()['id']}")).json()
    assert upload["state"] == "refused"
    assert all(upload["reason"][part] for part in ("code", "message", "fix"))
    assert upload["reason"]["code"] not in ("validation_crashed", "server_disk"), upload["reason"]
    assert upload["version"] is None
    assert queue.names() == ["validate_next"], "nothing is staged"
    assert not Adapter.objects.exists()
    assert not Placement.objects.exists()
    assert artifacts(lorikeet) == []
    assert AuditEvent.objects.filter(action="upload.refused").count() == 1


def test_form_errors(acme: Any, host: EngineHost) -> None:
    assert post(acme, {}).json()["error"]["param"] == "files"
    bad_name = post(acme, adapter_files(), name="../etc").json()["error"]
    assert (bad_name["code"], bad_name["param"]) == ("invalid_request", "name")
    assert bad_name["fix"]
    taken = post(acme, adapter_files(), name="fake-base")
    assert (taken.status_code, taken.json()["error"]["code"]) == (409, "name_is_base_model")
    twice = acme.client().post(
        acme.path("uploads"),
        {"name": "a", "files": [SimpleUploadedFile("x.json", b"1"), SimpleUploadedFile("x.json", b"2")]},
        format="multipart",
    )
    assert twice.json()["error"]["code"] == "duplicate_file"
    no_multipart = acme.client().post(acme.path("uploads"), {"name": "a"}, format="json")
    assert no_multipart.status_code == 415
    assert no_multipart.json()["error"]["fix"]


def test_waits_for_the_first_host(acme: Any, queue: Any, committing: Any, django_user_model: Any) -> None:
    with committing():
        answer = post(acme, adapter_files())
        validation_job.validate_next()
    waiting = acme.client().get(acme.path(f"uploads/{answer.json()['id']}")).json()
    assert waiting["state"] == "received"
    assert waiting["reason"]["code"] == "waiting_for_host"

    assert not validation_job.validate_next(), "there is nothing to do meanwhile"
    assert AuditEvent.objects.filter(action="upload.received").count() == 1, "it was told once"


def test_what_a_dead_worker_had_is_taken_up_again(acme: Any, host: EngineHost, queue: Any, committing: Any) -> None:
    with committing():
        post(acme, adapter_files())
    assert uploads.claim_next() is not None
    assert uploads.claim_next() is None, "in other hands"
    Upload.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
    with committing():
        assert validation_job.validate_next()
    assert Upload.objects.get().state == UploadState.ACCEPTED
    assert not validation_job.validate_next()


def test_gives_up_after_repeated_crashes(acme: Any, host: EngineHost, queue: Any, committing: Any) -> None:
    with committing():
        post(acme, adapter_files())
    for _ in range(uploads.MAX_ATTEMPTS):
        assert uploads.claim_next() is not None
        claims.end_all()
    assert uploads.claim_next() is None
    assert Upload.objects.get().reason == uploads.GIVEN_UP


def test_child_limits(acme: Any, host: EngineHost, queue: Any, committing: Any, settings: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"validate_memory_bytes": 64 << 20})
    with committing():
        post(acme, adapter_files())
        validation_job.validate_next()
    assert Upload.objects.get().state == UploadState.REFUSED
    assert Upload.objects.get().reason["code"] in ("validation_too_costly", "validation_crashed")


def test_memory_that_ends_within_a_system_call(
    acme: Any, host: EngineHost, queue: Any, committing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation_job, "start_child", lambda: ScriptedChild(lambda _: {"disk": errno.ENOMEM}))
    with committing():
        post(acme, adapter_files())
        validation_job.validate_next()
    assert Upload.objects.get().state == UploadState.REFUSED
    assert Upload.objects.get().reason["code"] == "validation_too_costly"


def test_version_is_immutable(acme: Any, upload: Any) -> None:
    version = upload(acme).version
    version.digest = "sha256:" + "0" * 64
    with pytest.raises(RuntimeError, match="update_fields"):
        version.save()
    version.state = VersionState.FAILED
    version.save(update_fields=["state"])


def test_text_that_databases_refuse(acme: Any, upload: Any) -> None:
    config = config_bytes(base_model_name_or_path="nul \0 and half a pair \ud800")
    decided = upload(acme, files={**adapter_files(), CONFIG_FILE: config})
    assert decided.state in (UploadState.ACCEPTED, UploadState.REFUSED)
    assert "\0" not in str(decided.report) + str(decided.reason)


@pytest.mark.parametrize("name", ["%00", "a%00b", "a" * 300, "%F0%9F%A6%9C", "..%2f..", "A B"])
def test_strange_names_in_addresses(acme: Any, name: str) -> None:
    for path in (f"adapters/{name}", f"adapters/{name}/versions/1"):
        assert acme.client().get(acme.path(path)).status_code == 404
    assert acme.client().get(f"/api/tenants/{name}/adapters").status_code == 404


def test_large_version_number(acme: Any, upload: Any) -> None:
    upload(acme)
    assert acme.client().get(acme.path(f"adapters/support/versions/{10**30}")).status_code == 404


def test_an_orderly_end_is_no_error(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def cut_off() -> bool:
        raise validation_job.ValidationCancelledError

    monkeypatch.setattr(validation_job, "validate_next", cut_off)
    with caplog.at_level("WARNING"):
        validate_next.apply()
    assert not caplog.records


def test_sweep(acme: Any, host: EngineHost, queue: Any, committing: Any, lorikeet: Any) -> None:
    with committing():
        waiting = post(acme, adapter_files()).json()["id"]
    left = lorikeet.artifacts / "uploads" / "11111111-1111-1111-1111-111111111111"
    left.mkdir()
    part = lorikeet.artifacts / "incoming" / "x.part"
    part.write_bytes(b"x")
    assert uploads.sweep() == 0, "too fresh"
    for path in (left, part, left.parent / waiting):
        os.utime(path, (1, 1))
    assert uploads.sweep() == 2
    assert [path.name for path in left.parent.iterdir()] == [waiting]


def test_sweep_beside_whoever_removes_it(lorikeet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    incoming = lorikeet.artifacts / "incoming"
    incoming.mkdir(parents=True, exist_ok=True)
    for name in ("seen", "listed"):
        (incoming / f"{name}.part").write_bytes(b"x")
        os.utime(incoming / f"{name}.part", (1, 1))
    lstat = Path.lstat

    def late(path: Path) -> os.stat_result:
        if path.name == "listed.part":
            path.unlink()
        found = lstat(path)
        if path.name == "seen.part":
            path.unlink()
        return found

    monkeypatch.setattr(Path, "lstat", late)
    uploads.sweep()
    assert not [*incoming.iterdir()]
