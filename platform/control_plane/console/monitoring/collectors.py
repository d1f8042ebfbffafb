"""Collectors of the installation's state, which web processes read from the database at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

from django.db import DatabaseError
from django.db.models import Count, Max, Min, QuerySet
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from control_plane.adapters.registry.models import AdapterVersion, VersionState
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.billing.archives.models import ArchiveRun
from control_plane.billing.reports.models import Export, ExportState
from control_plane.billing.usage.models import UsageEvent, Watermark
from control_plane.console.webhooks.models import Delivery, DeliveryState
from control_plane.core.config import current
from control_plane.core.jobs import clocks
from control_plane.core.metrics.registry import INSTALLATION
from control_plane.fleet.hosts.models import StagingPhase
from control_plane.fleet.placements.models import Placement
from control_plane.gateway.batches.models import OPEN, Batch
from control_plane.identity.audit.models import AuditEvent

ReadState = Callable[[], Iterable[GaugeMetricFamily]]


class DatabaseState(Collector):
    """A collector of gauges that a function reads from the database; it yields nothing while that is away."""

    def __init__(self, read: ReadState) -> None:
        self._read = read

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        try:
            gauges = list(self._read())
        except DatabaseError:
            return
        yield from gauges


def jobs() -> Iterator[GaugeMetricFamily]:
    """Yield the jobs that are not done, by kind, and the age of the oldest: a task of a queue takes the next one."""
    now = clocks.database_time()
    count = GaugeMetricFamily("lorikeet_jobs_open", "Jobs that wait or run, by kind.", labels=["kind"])
    age = GaugeMetricFamily("lorikeet_jobs_oldest_seconds", "Age of the oldest open job.", labels=["kind"])
    for kind, (rows, column) in _open_jobs().items():
        row = rows.order_by().aggregate(count=Count("pk"), oldest=Min(column))
        count.add_metric([kind], row["count"])
        age.add_metric([kind], _age_s(row["oldest"], now))
    yield from (count, age)


def _open_jobs() -> dict[str, tuple[QuerySet[Any], str]]:
    staging = Placement.objects.exclude(phase__in=[StagingPhase.READY, StagingPhase.FAILED])
    return {
        "validation": (Upload.objects.filter(state__in=[UploadState.RECEIVED, UploadState.VALIDATING]), "created_at"),
        "staging": (staging, "updated_at"),
        "webhooks": (Delivery.objects.filter(state=DeliveryState.PENDING), "created_at"),
        "exports": (Export.objects.filter(state__in=[ExportState.QUEUED, ExportState.RUNNING]), "created_at"),
        "batches": (Batch.objects.filter(state__in=OPEN), "created_at"),
    }


def _age_s(at: datetime | None, now: datetime) -> float:
    return max(0.0, (now - at).total_seconds()) if at is not None else 0.0


def placements() -> Iterator[GaugeMetricFamily]:
    """Yield the placements by phase, and the versions of adapters by state."""
    yield _by_value("lorikeet_placements", "Adapter versions on hosts, by phase.", "phase", Placement, StagingPhase)
    text = "Adapter versions, by state."
    yield _by_value("lorikeet_adapter_versions", text, "state", AdapterVersion, VersionState)


def _by_value(name: str, text: str, column: str, model: Any, values: Any) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(name, text, labels=[column])
    counts = dict(model.objects.order_by().values_list(column).annotate(count=Count("pk")))
    for value in values.values:
        gauge.add_metric([value], counts.get(value, 0))
    return gauge


def ledger() -> Iterator[GaugeMetricFamily]:
    """Yield how far the rollups are behind the ledger."""
    mark = Watermark.objects.first()
    newest = UsageEvent.objects.aggregate(last=Max("id"))["last"] or 0
    age = GaugeMetricFamily(
        "lorikeet_usage_watermark_age_seconds", "Since the rollups of usage last held the whole ledger."
    )
    if mark is not None and mark.checked_at is not None:
        age.add_metric([], _age_s(mark.checked_at, clocks.database_time()))
    behind = GaugeMetricFamily("lorikeet_usage_rows_behind", "Rows of the ledger that are not in the rollups yet.")
    behind.add_metric([], max(0, newest - (mark.event_id if mark is not None else 0)))
    yield from (age, behind)


def archives() -> Iterator[GaugeMetricFamily]:
    """Yield the age of the oldest row and of the last run for each table whose old rows are archived."""
    now, settings = clocks.database_time(), current()
    oldest = GaugeMetricFamily(
        "lorikeet_archive_oldest_row_seconds", "Age of the oldest row that is in the database.", labels=["table"]
    )
    run = GaugeMetricFamily(
        "lorikeet_archive_run_age_seconds",
        "Since old rows were last archived, or none were due, without a failure.",
        labels=["table"],
    )
    finished = dict(ArchiveRun.objects.values_list("table", "finished_at"))
    rows: tuple[tuple[str, int, QuerySet[Any]], ...] = (
        ("ledger", settings.ledger_months, UsageEvent.objects.all()),
        ("audit", settings.audit_months, AuditEvent.objects.all()),
    )
    for table, kept_months, kept in rows:
        oldest.add_metric([table], _age_s(kept.order_by("id").values_list("created_at", flat=True).first(), now))
        if kept_months and finished.get(table):
            run.add_metric([table], _age_s(finished[table], now))
    yield from (oldest, run)


for _read in (jobs, placements, ledger, archives):
    INSTALLATION.register(DatabaseState(_read))
