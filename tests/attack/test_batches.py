"""Batches: another tenant's are as unknown as any, and no worker that lost a batch can write to it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.utils import timezone
from lorikeet_testing.concurrent import while_another_commits
from lorikeet_testing.fake_engine import Behaviour
from lorikeet_testing.web import WebProcess

from control_plane.billing.usage.actions import Ended
from control_plane.billing.usage.counters import Counts
from control_plane.billing.usage.models import ApiEndpoint, UsageEvent
from control_plane.core.errors import LorikeetError
from control_plane.core.jobs.claims import ClaimLostError
from control_plane.gateway.batches import actions, files
from control_plane.gateway.batches.models import Batch, BatchLine, BatchState, StoredFile
from control_plane.identity.access.principal import Principal
from control_plane.identity.keys.actions import revoke_key
from control_plane.identity.tenants.models import Tenant

BODY = {"model": "m", "messages": []}


def content(count: int) -> bytes:
    line = {"method": "POST", "url": "/v1/chat/completions", "body": BODY}
    return b"".join(json.dumps({"custom_id": f"r{n}", **line}).encode() + b"\n" for n in range(count))


def create(acting: Principal, file: StoredFile) -> None:
    assert acting.api_key is not None
    actions.create_batch(acting=acting, api_key=acting.api_key, input_file=str(file), endpoint=ApiEndpoint.CHAT)


def begun(org: Any, count: int = 3) -> Batch:
    acting = Principal.of_key(org.key()[0])
    data = content(count)
    file = files.upload_file(acting=acting, name="x.jsonl", content=[data], size=len(data))
    create(acting, file)
    batch = actions.claim_next()
    assert batch is not None
    actions.validate(batch, lambda _: None)
    assert actions.state_of(batch) == BatchState.IN_PROGRESS
    return batch


def ended(org: Any, name: str) -> Ended:
    return Ended(
        request_id=name, tenant=org.tenant, model="m", endpoint="chat.completions", outcome="finished",
        created_at=timezone.now(), counts=Counts(completion_tokens=5), batch=True,
    )  # fmt: skip


def taken_over(batch: Batch) -> Batch:
    """As when its worker stood still for longer than a claim lasts."""
    Batch.objects.filter(pk=batch.pk).update(claimed_until=timezone.now() - timedelta(seconds=1))
    other = actions.claim_next()
    assert other is not None and other.pk == batch.pk
    return other


@pytest.mark.django_db
def test_result_and_usage_are_written_once(acme: Any) -> None:
    batch = begun(acme)
    [line, *_] = actions.lines_to_run(batch, 0, 10)
    result = {"response": {"status_code": 200}, "error": None}
    assert actions.keep_result(batch, line, result, [ended(acme, "a")], failed=False)
    assert not actions.keep_result(batch, line, result, [ended(acme, "b")], failed=False)
    assert [event.request_id for event in UsageEvent.objects.filter(batch=True)] == ["a"]


@pytest.mark.django_db
def test_a_worker_that_lost_the_batch_writes_nothing(acme: Any) -> None:
    batch = begun(acme)
    [line, *_] = actions.lines_to_run(batch, 0, 10)
    new = taken_over(batch)
    writes = (
        lambda: actions.keep_result(batch, line, {"error": None}, [ended(acme, "late")], failed=False),
        lambda: actions.finish(batch, BatchState.COMPLETED),
        lambda: actions.validate(batch, lambda _: None),
        lambda: actions.state_of(batch),
    )
    for write in writes:
        with pytest.raises(ClaimLostError):
            write()
    assert not UsageEvent.objects.exists()
    assert len(actions.lines_to_run(new, 0, 10)) == 3


@pytest.mark.django_db
def test_a_file_half_read_is_read_again_from_its_beginning(acme: Any) -> None:
    batch = begun(acme, 5)
    Batch.objects.filter(pk=batch.pk).update(state=BatchState.VALIDATING)
    new = taken_over(batch)
    actions.validate(new, lambda _: None)
    assert BatchLine.objects.filter(batch=new).count() == 5


@pytest.mark.django_db
def test_a_batch_whose_window_is_over_expires(acme: Any) -> None:
    batch = begun(acme)
    [line, *_] = actions.lines_to_run(batch, 0, 10)
    actions.keep_result(batch, line, {"response": {"status_code": 200}, "error": None}, [], failed=False)
    Batch.objects.filter(pk=batch.pk).update(expires_at=timezone.now())
    assert actions.state_of(batch) == BatchState.EXPIRED
    actions.finish(batch, BatchState.EXPIRED)
    row = Batch.objects.get(pk=batch.pk)
    assert (row.state, row.completed, row.failed) == (BatchState.EXPIRED, 1, 2)
    assert row.error_file is not None
    rows = [json.loads(text) for text in files.lines(row.error_file)]
    assert {entry["error"]["code"] for entry in rows} == {"batch_expired"}


@pytest.mark.django_db
def test_an_answer_that_comes_as_the_window_ends_is_a_result_and_billed(acme: Any) -> None:
    batch = begun(acme)
    [line, *_] = actions.lines_to_run(batch, 0, 10)
    Batch.objects.filter(pk=batch.pk).update(expires_at=timezone.now())
    assert actions.state_of(batch) == BatchState.EXPIRED
    result = {"response": {"status_code": 200}, "error": None}
    assert actions.keep_result(batch, line, result, [ended(acme, "late")], failed=False)
    actions.finish(batch, BatchState.EXPIRED)
    row = Batch.objects.get(pk=batch.pk)
    assert (row.state, row.completed, row.failed) == (BatchState.EXPIRED, 1, 2)
    assert UsageEvent.objects.get().request_id == "late"


@pytest.mark.django_db
def test_a_batch_that_is_cancelled_while_it_is_validated_counts_its_lines(acme: Any) -> None:
    batch = begun(acme)
    Batch.objects.filter(pk=batch.pk).update(state=BatchState.VALIDATING, total=0)
    new = taken_over(batch)
    cancelled = actions.cancel_batch(acting=acme.principal(), name=str(batch))
    actions.validate(new, lambda _: None)
    assert (cancelled.state, actions.state_of(new)) == (BatchState.CANCELLING, BatchState.CANCELLING)
    actions.finish(new, BatchState.CANCELLED)
    row = Batch.objects.get(pk=batch.pk)
    assert actions.counts_of(row) == {"total": 3, "completed": 0, "failed": 3}


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_no_file_is_deleted_while_a_batch_of_it_is_created(acme: Any) -> None:
    acting = Principal.of_key(acme.key()[0])
    file = files.upload_file(acting=acting, name="x.jsonl", content=[content(1)], size=len(content(1)))

    def delete() -> None:
        with pytest.raises(LorikeetError) as used:
            files.delete_file(acting=acting, name=str(file))
        assert used.value.code == "file_in_use"

    while_another_commits(lambda: create(acting, file), delete)
    assert Batch.objects.get().input_file == file


@pytest.mark.django_db
def test_a_revoked_key_runs_nothing_more(acme: Any) -> None:
    batch = begun(acme)
    revoke_key(acting=acme.principal(), key=batch.api_key)
    assert actions.state_of(batch) == BatchState.CANCELLING


@pytest.mark.django_db
def test_a_suspended_tenants_batch_rests(acme: Any) -> None:
    batch = begun(acme)
    acme.tenant.suspended_at = timezone.now()
    acme.tenant.save()
    assert actions.state_of(batch) == actions.SUSPENDED
    actions.release(batch)
    assert actions.claim_next() is None


@pytest.mark.django_db
def test_a_tenant_that_is_suspended_as_its_batch_is_checked_keeps_it(acme: Any, monkeypatch: Any) -> None:
    """A key of a suspended tenant may not infer, which is no reason to cancel its batch."""
    batch = begun(acme)

    def suspend() -> Any:
        Tenant.objects.filter(pk=acme.tenant.pk).update(suspended_at=timezone.now())
        return timezone.now()

    monkeypatch.setattr(actions.clocks, "database_time", suspend)
    assert actions.state_of(batch) == BatchState.IN_PROGRESS
    assert actions.state_of(batch) == actions.SUSPENDED


@pytest.mark.django_db
def test_a_tenant_has_bounds(acme: Any, settings: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"batch_tenant_bytes": 1000})
    acting = Principal.of_key(acme.key()[0])
    files.upload_file(acting=acting, name="a", content=[bytes(900)], size=900)
    with pytest.raises(LorikeetError) as full:
        files.upload_file(acting=acting, name="b", content=[bytes(200)], size=200)
    assert full.value.code == "file_storage_full"
    StoredFile.objects.update(expires_at=timezone.now() - timedelta(days=1))
    assert files.forget() == 1
    file = files.upload_file(acting=acting, name="c", content=[b"x"], size=1)
    for _ in range(actions.MAX_OPEN):
        create(acting, file)
    with pytest.raises(LorikeetError) as many:
        create(acting, file)
    assert many.value.code == "too_many_batches"


# -- other tenants ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(steps_per_second=500)


def test_another_tenants_files_and_batches_are_as_unknown_as_any(web: WebProcess) -> None:
    with httpx.Client(base_url=web.url, trust_env=False, timeout=30) as http:
        own, foreign = web.tenants["acme"].bearer, web.tenants["globex"].bearer
        sent = {"file": ("secret.jsonl", content(2))}
        file = http.post("/v1/files", files=sent, data={"purpose": "batch"}, headers=own).json()["id"]
        asked = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        batch = http.post("/v1/batches", json=asked, headers=own).json()["id"]
        unknown = {file: "file-" + "0" * 32, batch: "batch_" + "0" * 32}
        doors = [
            ("GET", "/v1/files/{}", file), ("GET", "/v1/files/{}/content", file), ("DELETE", "/v1/files/{}", file),
            ("GET", "/v1/batches/{}", batch), ("POST", "/v1/batches/{}/cancel", batch),
        ]  # fmt: skip
        for method, path, name in doors:
            answer = http.request(method, path.format(name), headers=foreign)
            missing = http.request(method, path.format(unknown[name]), headers=foreign)
            assert answer.status_code == missing.status_code == 404, path
            assert answer.text.replace(name, "…") == missing.text.replace(unknown[name], "…")
        assert http.post("/v1/batches", json=asked, headers=foreign).status_code == 404
        for path in ("/v1/files", "/v1/batches"):
            assert http.get(path, headers=foreign).json()["data"] == []
            assert http.get(path, params={"after": file}, headers=foreign).status_code == 400
        viewer = {"Authorization": f"Bearer {web.tenants['acme'].view_only_key}"}
        assert http.get("/v1/files", headers=viewer).status_code == 403
        assert http.get(f"/v1/files/{file}", headers=own).status_code == 200
