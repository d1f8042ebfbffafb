"""Archiving, restoring, deleting; what counts as storage; and removing content that nothing refers to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from control_plane.adapters.artifacts import artifact_gc
from control_plane.adapters.artifacts.configured import artifact_store
from control_plane.adapters.artifacts.models import Content
from control_plane.adapters.artifacts.store import ArtifactStore
from control_plane.adapters.artifacts.tasks import collect
from control_plane.adapters.registry.aliases import set_alias, start_canary
from control_plane.adapters.registry.archiving import (
    archive_adapter,
    archive_version,
    delete_archived_adapter,
    delete_expired,
    delete_version,
    restore_adapter,
    restore_version,
)
from control_plane.adapters.registry.models import Adapter, AdapterVersion, Alias, VersionState
from control_plane.adapters.uploads import actions as uploads
from control_plane.adapters.uploads import validation_job
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.billing.limits.models import LimitSet
from control_plane.core.errors import LorikeetError
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.tenants.roles import Role

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]
NOW = timedelta(0)


@pytest.fixture
def store(lorikeet: Any) -> ArtifactStore:
    return artifact_store()


def fresh(version: AdapterVersion) -> AdapterVersion:
    version.refresh_from_db()
    return version


def test_archived_and_restored(acme: Any, two: Any, queue: Any, committing: Any, store: Any) -> None:
    second = two[1]
    client, at = acme.client(Role.DEVELOPER), acme.path("adapters/support/versions/2")
    with committing():
        shown = client.post(f"{at}/archive").json()
    assert (shown["state"], shown["placements"]) == ("archived", [])
    assert shown["kept_until"] > timezone.now().isoformat()
    assert "drop_unwanted" in queue.names()
    assert client.post(f"{at}/promote").json()["error"]["code"] == "version_archived"
    assert client.post(f"{at}/restage").json()["error"]["code"] == "version_archived"
    assert client.post(f"{at}/archive").status_code == 200, "again does nothing"
    collect()
    assert store.has(second.digest)
    with committing():
        restored = client.post(f"{at}/restore")
    assert (restored.status_code, restored.json()["state"], restored.json()["kept_until"]) == (202, "staging", None)
    assert queue.names()[-1] == "stage_next"
    assert client.post(f"{at}/restore").json()["error"]["code"] == "version_not_archived"


def test_in_use(acme: Any, two: Any) -> None:
    first, second = two
    set_alias(acting=acme.principal(), version=first, name="prod")
    start_canary(acting=acme.principal(), version=second, name="prod", percent=10)
    client = acme.client()
    for number, said in (
        (1, "support@v1 is in use: support@live points at it; support@prod points at it."),
        (2, "support@v2 is in use: it is the canary of support@prod."),
    ):
        for answer in (
            client.post(acme.path(f"adapters/support/versions/{number}/archive")),
            client.delete(acme.path(f"adapters/support/versions/{number}")),
        ):
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "version_in_use")
            assert answer.json()["error"]["message"] == said
    assert fresh(second).state == VersionState.READY


def test_deleted_for_good(acme: Any, two: Any, upload: Any, store: Any) -> None:
    first, second = two
    set_alias(acting=acme.principal(), version=second, name="live")
    assert Alias.objects.get(name="live").previous == first
    assert acme.client().delete(acme.path("adapters/support/versions/1")).status_code == 204
    assert Alias.objects.get(name="live").previous is None
    assert acme.client().get(acme.path("adapters/support/versions/1")).status_code == 404
    assert [v["number"] for v in acme.client().get(acme.path("adapters/support")).json()["versions"]] == [2]
    assert artifact_gc.collect(NOW) == 1
    assert (store.has(first.digest), store.has(second.digest)) == (False, True)
    again = upload(acme)
    assert (again.version.number, again.reused_version) == (3, False), "numbers are not given twice"
    assert store.has(first.digest)


def test_uploading_what_is_archived_restores_it(acme: Any, two: Any, upload: Any) -> None:
    archive_version(acting=acme.principal(), version=two[1])
    again = upload(acme, seed=1)
    assert (again.version.number, again.version.state) == (2, VersionState.STAGING)


def test_adapter_comes_back_as_it_was(acme: Any, two: Any, upload: Any) -> None:
    set_alias(acting=acme.principal(), version=two[0], name="prod")
    third = upload(acme, seed=2).version
    archive_version(acting=acme.principal(), version=third)
    client = acme.client()
    assert client.delete(acme.path("adapters/support")).status_code == 204
    listed = client.get(acme.path("archived-adapters")).json()
    assert [(row["name"], row["versions_count"]) for row in listed] == [("support", 3)]
    blocking = upload(acme).version
    path = acme.path(f"archived-adapters/{listed[0]['id']}")
    assert client.post(f"{path}/restore").json()["error"]["code"] == "adapter_name_taken"
    archive_adapter(acting=acme.principal(), adapter=blocking.adapter)
    answer = client.post(f"{path}/restore")
    assert answer.status_code == 202
    assert [(a["name"], a["version"]) for a in answer.json()["aliases"]] == [("live", 1), ("prod", 1)]
    assert [v["state"] for v in answer.json()["versions"]] == ["archived", "staging", "staging"]
    assert client.delete(path).status_code == 404, "it is not archived any more"


def test_archived_adapter_deleted(acme: Any, two: Any, store: Any) -> None:
    adapter = archive_adapter(acting=acme.principal(), adapter=two[0].adapter)
    delete_archived_adapter(acting=acme.principal(), adapter_id=adapter.pk)
    with pytest.raises(LorikeetError, match="no archived adapter"):
        restore_adapter(acting=acme.principal(), adapter_id=adapter.pk)
    assert set(AdapterVersion.objects.values_list("state", flat=True)) == {VersionState.DELETED}
    assert artifact_gc.collect(NOW) == 2
    assert list(store.digests()) == []
    assert not Content.objects.exists()
    assert AuditEvent.objects.filter(action="content.remove", actor_kind="system").count() == 2


def test_kept_for_a_while_only(acme: Any, two: Any, ready_version: Any, lorikeet: Any) -> None:
    first, second = two
    archive_version(acting=acme.principal(), version=second)
    other = archive_adapter(acting=acme.principal(), adapter=ready_version(acme, "other", seed=3).adapter)
    assert delete_expired() == 0
    old = timezone.now() - timedelta(seconds=lorikeet.archive_keep_s + 1)
    Adapter.objects.filter(pk=other.pk).update(archived_at=old)
    AdapterVersion.objects.filter(state=VersionState.ARCHIVED).update(archived_at=old)
    assert delete_expired() == 2
    assert delete_expired() == 0
    assert fresh(second).state == VersionState.DELETED
    assert fresh(first).state == VersionState.READY


def test_storage(acme: Any, globex: Any, two: Any, ready_version: Any) -> None:
    first, second = two
    same = ready_version(acme, "copy")
    ready_version(globex)

    def read() -> Any:
        return acme.client(Role.VIEWER).get(acme.path("storage")).json()

    shown = read()
    assert shown["bytes"] == first.bytes + second.bytes, "content that is shared counts once"
    assert [(row["name"], row["versions"], row["bytes"]) for row in shown["adapters"]] == [
        ("support", 2, first.bytes + second.bytes),
        ("copy", 1, same.bytes),
    ]
    archive_version(acting=acme.principal(), version=second)
    archive_adapter(acting=acme.principal(), adapter=same.adapter)
    assert (read()["bytes"], read()["archived_bytes"]) == (first.bytes, second.bytes)
    LimitSet.objects.create(tenant=acme.tenant, storage_bytes=first.bytes + 1)
    assert read()["limit_bytes"] == first.bytes + 1
    with pytest.raises(LorikeetError, match="limit"):
        restore_version(acting=acme.principal(), version=second)


# -- content -----------------------------------------------------------------------------------------------------------


def test_content_of_two_tenants_stays_for_the_second(acme: Any, globex: Any, ready_version: Any, store: Any) -> None:
    ours, theirs = ready_version(acme), ready_version(globex)
    Alias.objects.for_tenant(acme.tenant).delete()
    delete_version(acting=acme.principal(), version=ours)
    assert artifact_gc.collect(NOW) == 0
    Alias.objects.for_tenant(globex.tenant).delete()
    delete_version(acting=globex.principal(), version=theirs)
    assert artifact_gc.collect() == 0, "touched lately"
    assert artifact_gc.collect(NOW) == 1
    assert not store.has(ours.digest)


def test_content_of_an_upload_stays(acme: Any, upload: Any, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector comes between storing and the version, at the worst moment."""
    real, seen = uploads.accept_upload, []

    def collected_first(*args: Any, **more: Any) -> bool:
        seen.append(artifact_gc.collect(NOW))
        return real(*args, **more)

    monkeypatch.setattr(uploads, "accept_upload", collected_first)
    version = upload(acme).version
    assert seen == [0]
    assert store.has(version.digest)


def test_content_of_a_refused_upload_goes(acme: Any, upload: Any, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = validation_job.inspect

    def limited_meanwhile(received: Upload, base: Any) -> Any:
        LimitSet.objects.create(tenant=acme.tenant, storage_bytes=1)
        return real(received, base)

    monkeypatch.setattr(validation_job, "inspect", limited_meanwhile)
    assert upload(acme).reason["code"] == "storage_limit_reached"
    assert len(list(store.digests())) == 1
    assert artifact_gc.collect(NOW) == 1
    assert list(store.digests()) == []


def test_what_a_slow_worker_stores_too_late_is_found(
    acme: Any, upload: Any, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood still between taking the content and storing it; meanwhile the upload was refused elsewhere."""
    real = artifact_gc.reserve_content

    def refused_meanwhile(received: Upload, digest: str) -> bool:
        held = real(received, digest)
        uploads.refuse_upload(received, uploads.GIVEN_UP, None)
        assert artifact_gc.collect(NOW) == 1
        return held

    monkeypatch.setattr(artifact_gc, "reserve_content", refused_meanwhile)
    assert upload(acme).state == UploadState.REFUSED
    assert len(list(store.digests())) == 1
    assert artifact_gc.collect(NOW) == 1
    assert list(store.digests()) == []


def test_decided_before_it_is_stored(acme: Any, upload: Any, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = validation_job.inspect

    def refused_meanwhile(received: Upload, base: Any) -> Any:
        verdict = real(received, base)
        uploads.refuse_upload(received, uploads.GIVEN_UP, None)
        return verdict

    monkeypatch.setattr(validation_job, "inspect", refused_meanwhile)
    assert upload(acme).state == UploadState.REFUSED
    assert list(store.digests()) == []


def test_after_a_restored_backup(acme: Any, two: Any, store: Any, capsys: Any) -> None:
    """The database is older than the store: it knows the first version only."""
    first, second = two
    Upload.objects.filter(version=second).delete()
    second.delete()
    Content.objects.filter(digest=second.digest).delete()
    call_command("check_artifacts")
    assert "1 contents in the store belong to nothing" in capsys.readouterr().out
    assert artifact_gc.collect(NOW) == 1
    assert list(store.digests()) == [first.digest]
    store.remove(first.digest)
    with pytest.raises(CommandError, match="1 versions are missing"):
        call_command("check_artifacts")
