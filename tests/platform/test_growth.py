"""Every table of the platform has a bound: a setting, a retention task, or a reason why its rows stay for good."""

from __future__ import annotations

import io
import json
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command
from django.utils import timezone
from lorikeet_testing.ledger import record_event

from control_plane.adapters.uploads import tasks as upload_tasks
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.billing.archives import archiving
from control_plane.billing.archives.audit_log import AUDIT
from control_plane.billing.archives.models import ArchiveRun
from control_plane.billing.archives.tables import bounds, month_of, months_before
from control_plane.billing.archives.tasks import archive_audit
from control_plane.billing.usage import aggregation
from control_plane.billing.usage import tasks as usage_tasks
from control_plane.billing.usage.counters import Counts
from control_plane.billing.usage.ledger_archive import LEDGER
from control_plane.billing.usage.models import DailyUsage, HourlyUsage, UsageEvent
from control_plane.billing.usage.rollup_check import differences
from control_plane.core.config import REPOSITORY, Settings
from control_plane.core.metrics.registry import INSTALLATION
from control_plane.fleet.joining.models import JoinToken
from control_plane.fleet.joining.tasks import forget_tokens
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.members.tasks import forget as forget_invitations
from control_plane.identity.tenants.models import Invitation

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]

# Rows whose number follows from what people configured, or from the fleet.
CONFIGURED = {
    "django_content_type": "one of each model",
    "auth_permission": "Django's, of each model; not used",
    "auth_group": "Django's; not used",
    "auth_group_permissions": "Django's; not used",
    "accounts_user": "people",
    "accounts_identity": "people's identities at a provider",
    "tenants_membership": "people in tenants",
    "second_factor_authenticatorapp": "one of each person",
    "second_factor_passkey": "people's passkeys",
    "second_factor_recoverycode": "ten of each person",
    "jobs_queue": "one of each queue",
    "jobs_queueposition": "one of each tenant and queue",
    "jobs_clockrecord": "one",
    "registry_alias": "names of adapters' versions",
    "imports_hubtoken": "one of each tenant",
    "imports_bucketcredentials": "a few of each tenant",
    "imports_hubmodelpolicy": "one of each tenant",
    "imports_hubfollow": "adapters that follow a branch",
    "hosts_enginehost": "the fleet",
    "hosts_hostadapter": "what hosts hold now",
    "placements_placement": "versions times hosts; deleted with either",
    "placements_pinnedprefix": "prefixes that tenants pinned",
    "placements_prefixonhost": "pinned prefixes times hosts",
    "base_models_basemodel": "base models",
    "limits_limitset": "limits of tenants and keys",
    "quotas_budget": "budgets of tenants and keys",
    "slo_objective": "one of each tenant",
    "usage_watermark": "one",
    "archives_archiverun": "one of each archived table",
    "transcripts_recording": "one of each tenant",
    "api_settings_apisettings": "one of each tenant",
    "origins_allowedorigin": "origins that tenants listed",
    "webhooks_endpoint": "a few of each tenant",
    "reports_exportschedule": "a few of each tenant",
    "evaluations_evaluationset": "sets that tenants wrote",
}
# Rows that a periodic task deletes. The setting is that of Settings; without one a constant beside the task.
RETENTION = {
    "usage_usageevent": ("ledger_months", "usage.archive_ledger"),
    "audit_auditevent": ("audit_months", "archives.archive_audit"),
    "usage_hourlyusage": ("hourly_usage_days", "usage.forget_hours"),
    "usage_minutesums": ("", "usage.forget_series"),
    "usage_hoursums": ("", "usage.forget_series"),
    "usage_daysums": ("", "usage.forget_series"),
    "usage_abandonedtry": ("", "usage.forget_abandoned"),
    "uploads_upload": ("closed_rows_days", "uploads.forget"),
    "imports_hubmodel": ("closed_rows_days", "uploads.forget"),  # with its upload
    "tenants_invitation": ("closed_rows_days", "members.forget_invitations"),
    "joining_jointoken": ("closed_rows_days", "joining.forget_tokens"),
    "django_session": ("", "accounts.clear_sessions"),
    "accounts_signin": ("", "accounts.clear_sessions"),
    "artifacts_content": ("archive_keep_s", "artifacts.collect"),
    "conversations_storedresponse": ("response_expire_s", "conversations.forget"),
    "batches_batch": ("", "batches.forget"),
    "batches_batchline": ("", "batches.forget"),
    "batches_storedfile": ("batch_file_expire_s", "batches.forget"),
    "batches_filepart": ("batch_file_expire_s", "batches.forget"),
    "transcripts_transcript": ("", "transcripts.forget"),  # the tenant's days
    "refusals_refusal": ("", "refusals.forget"),
    "refusals_hourlyrefusals": ("", "refusals.forget"),
    "webhooks_event": ("", "webhooks.forget"),
    "webhooks_delivery": ("", "webhooks.forget"),
    "webhooks_attempt": ("", "webhooks.forget"),
    "reports_export": ("", "reports.tend_exports"),
    "reports_exportpart": ("", "reports.tend_exports"),
}
KEPT = {
    "secrets_secretrecord": "one for each secret",
    "tenants_tenant": "statements and archives name them",
    "keys_apikey": "the ledger and the archives name them",
    "registry_adapter": "the ledger and the archives name them; a deleted one has no files",
    "registry_adapterversion": "the ledger and the archives name them; a deleted one has no files",
    "prices_priceversion": "statements are computed from them",
    "usage_series": "the names of what sums are of: one for each version, key and outcome that was used",
    "usage_timeseries": "the same of the time series",
    "usage_dailyusage": "statements are computed from them",
    "usage_dailytotals": "reports of past years",
    "usage_overalltotals": "reports of past years: a few rows a day",
    "usage_dailyactivity": "reports of past years",
    "usage_dailylatency": "reports of past years: at most 160 rows a day and tenant",
    "usage_overalllatency": "reports of past years: at most 160 rows a day",
    "usage_storageday": "statements are computed from them: one a day and tenant",
    "refusals_dailyrefusals": "reports of past years: one a day and tenant",
    "archives_archivepart": "where archived rows are: about two a month",
    "hosts_servicegap": "deleted when later ones of the host are inserted",
    "evaluations_evaluation": "the history of a version, deleted with it",
}


def test_every_table_is_in_one_class() -> None:
    tables = {model._meta.db_table for model in apps.get_models(include_auto_created=True)}
    classes = [*CONFIGURED, *RETENTION, *KEPT]
    assert len(classes) == len(set(classes))
    assert tables == set(classes), "say in this file, and in docs/operations/growth.md, what bounds a table's rows"


def test_every_retention_has_a_task_that_runs_and_a_setting_that_is_documented() -> None:
    scheduled = {entry["task"] for entry in django_settings.CELERY_BEAT_SCHEDULE.values()}
    page = (REPOSITORY / "docs" / "operations" / "growth.md").read_text()
    for setting, task in RETENTION.values():
        assert task in scheduled
        assert f"`{task}`" in page
        assert not setting or (setting in Settings.model_fields and f"`LORIKEET_{setting.upper()}`" in page)


def record(org: Any, number: int, days_ago: int, **more: Any) -> None:
    record_event(
        request_id=f"req_{number}", tenant=org.tenant, model="m", endpoint="completions", outcome="finished",
        created_at=timezone.now() - timedelta(days=days_ago), counts=Counts(prompt_tokens=7, completion_tokens=number),
        **more,
    )  # fmt: skip


def test_hours_are_deleted_and_days_stay(acme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregation, "FORGOTTEN", 1)
    for number, days_ago in enumerate((401, 402, 399, 0), start=1):
        record(acme, number, days_ago)
    aggregation.aggregate()
    usage_tasks.forget_hours()
    assert HourlyUsage.objects.count() == 2 and DailyUsage.objects.count() == 4
    assert differences() == []
    first, last = (str((timezone.now() - timedelta(days=days)).date()) for days in (402, 399))
    span = {"from": first, "to": last}
    for answer in (
        acme.client().post(acme.path("exports"), {**span, "grain": "hour"}, format="json"),
        acme.client().get(acme.path("usage.csv"), {**span, "grain": "hour"}),
    ):
        assert answer.status_code == 400 and answer.json()["error"]["code"] == "hours_not_kept", answer.content
    assert acme.client().get(acme.path("usage.csv"), {**span, "grain": "day"}).status_code == 200


def test_closed_rows_are_deleted(acme: Any) -> None:
    now, old = timezone.now(), timezone.now() - timedelta(days=401)
    for number, at in enumerate((now, old)):
        Invitation.objects.create(tenant=acme.tenant, email=f"{number}@x.example", role="viewer", expires_at=at)
        JoinToken.objects.create(secret_hash=str(number), created_by="ada", expires_at=at)
        for state in (UploadState.REFUSED, UploadState.RECEIVED):
            upload = Upload.objects.create(
                id=uuid.uuid4(), tenant=acme.tenant, adapter_name="a", state=state, bytes=1, files=[], folder=""
            )
            Upload.objects.filter(pk=upload.pk).update(updated_at=at)
    for task in (upload_tasks.forget, forget_invitations, forget_tokens):
        task()
    assert list(Invitation.objects.values_list("email", flat=True)) == ["0@x.example"]
    assert list(JoinToken.objects.values_list("secret_hash", flat=True)) == ["0"]
    states = Upload.objects.order_by("state").values_list("state", flat=True)
    assert list(states) == [UploadState.RECEIVED, UploadState.RECEIVED, UploadState.REFUSED]


@pytest.fixture
def archived(acme: Any, globex: Any) -> Any:
    """A month that was archived by the periodic task, as the first day of that month."""
    month = months_before(month_of(timezone.now()), 8)
    days_ago = (timezone.now() - bounds(month)[0]).days - 3
    record(acme, 1, days_ago)
    record(globex, 2, days_ago)
    record(acme, 3, 0)
    aggregation.aggregate()
    usage_tasks.archive_ledger()
    assert UsageEvent.objects.count() == 1
    return month


def printed(*arguments: str) -> str:
    out = io.StringIO()
    call_command("read_archive", *arguments, stdout=out)
    return out.getvalue()


def test_an_archive_is_read_by_the_command(archived: Any) -> None:
    month = f"{archived:%Y-%m}"
    assert f"ledger {month} part 1: 2 rows" in printed("ledger")
    assert "1 files have the digests" in printed("ledger", "--verify")
    rows = [json.loads(line) for line in printed("ledger", month).splitlines()]
    assert {(row["tenant_slug"], row["request_id"]) for row in rows} == {("acme", "req_1"), ("globex", "req_2")}
    heading, line = printed("ledger", month, "--tenant", "acme", "--csv").splitlines()
    assert dict(zip(heading.split(","), line.split(","), strict=True))["request_id"] == "req_1"
    assert printed("ledger", month, "--tenant", "nobody") == ""
    with pytest.raises(CommandError, match="is not archived"):
        printed("ledger", "2020-01")
    with pytest.raises(CommandError, match="is not a month"):
        printed("ledger", "2026-13")
    part = next(archiving.file_store().names("archives/ledger"))
    archiving.file_store().remove(part.removesuffix(".json"))
    with pytest.raises(CommandError, match="does not exist"):
        printed("ledger", "--verify")


def test_the_documented_snippet_reads_an_archive(archived: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (REPOSITORY / "docs" / "operations" / "growth.md").read_text()
    snippet = page.split("```python\n")[1].split("```")[0]
    folder = archiving.current().artifacts / "archives" / "ledger" / f"{archived:%Y-%m}"
    assert "/var/lib/lorikeet/artifacts/archives/ledger/2026-05" in snippet
    values: dict[str, Any] = {}
    exec(snippet.replace("/var/lib/lorikeet/artifacts/archives/ledger/2026-05", str(folder)), values)
    totals = {row["tenant_slug"]: row["completion_tokens_sum"] for row in values["totals"].to_pylist()}
    assert totals == {"acme": 1, "globex": 2}


def test_tenants_learn_what_is_archived(acme: Any, archived: Any) -> None:
    page = acme.client().get(acme.path("requests")).json()
    until = str(months_before(archived, -1))
    assert [row["id"] for row in page["results"]] == ["req_3"] and page["archived_before"] == until
    span = {"from": str(archived), "to": str(bounds(archived)[1].date() - timedelta(days=1))}
    old = acme.client().post(acme.path("exports"), span, format="json").json()
    assert f"Single requests before {until} are archived" in old["note"]
    new = acme.client().post(acme.path("exports"), {"days": 2}, format="json").json()
    assert new["note"] == ""
    text = acme.client().get(acme.path("usage.csv"), span)
    assert text.status_code == 200


def test_metrics_tell_when_archiving_stands_still(acme: Any, archived: Any, settings: Any) -> None:
    def value(name: str, table: str) -> float | None:
        return INSTALLATION.get_sample_value(f"lorikeet_archive_{name}", {"table": table})

    assert (value("oldest_row_seconds", "ledger") or 0) < 60
    assert (value("run_age_seconds", "ledger") or 9) < 60 and value("run_age_seconds", "audit") is None
    archive_audit()
    assert (value("run_age_seconds", "audit") or 9) < 60
    ArchiveRun.objects.update(finished_at=timezone.now() - timedelta(days=2))
    assert (value("run_age_seconds", "ledger") or 0) > 86_400
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"ledger_months": 0})
    assert value("run_age_seconds", "ledger") is None, "nothing is due"
    assert AuditEvent.objects.exists() and {AUDIT.name, LEDGER.name} == {"audit", "ledger"}
