"""Actions on exports and export schedules, and the job that writes an export."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from control_plane.billing.reports.models import Cadence, Export, ExportPart, ExportSchedule, ExportState, Grain
from control_plane.billing.reports.usage_csv import UsageTable, require_kept
from control_plane.billing.usage.sums import Span, is_settled
from control_plane.console.webhooks.events import publish
from control_plane.console.webhooks.models import EventType
from control_plane.core.errors import LorikeetError
from control_plane.core.jobs import claims, clocks, fair_queue
from control_plane.core.writes import enqueue
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit import actions as audit
from control_plane.identity.tenants.models import Tenant

logger = logging.getLogger(__name__)

# Bytes of a part of a file, before it is stored.
PART_BYTES = 1 << 20
# Maximum number of exports of a tenant that wait or run.
MAX_WAITING = 10
# Attempts after which an export fails.
MAX_ATTEMPTS = 5
# Exports of a tenant that run at once.
TENANT_EXPORTS = 1
# Time for which exports are kept.
KEPT = timedelta(days=90)


def request_export(*, acting: Principal, span: Span, grain: Grain) -> Export:
    """Queue an export. Raises LorikeetError: too many wait (409), or the hours are no longer kept (400)."""
    require_kept(span, grain)
    with transaction.atomic():
        Tenant.objects.select_for_update(no_key=True).get(pk=acting.tenant.pk)  # so that the count holds
        rows = Export.objects.for_tenant(acting.tenant)
        if rows.filter(state__in=[ExportState.QUEUED, ExportState.RUNNING]).count() >= MAX_WAITING:
            raise LorikeetError(
                "too_many_exports",
                f"{MAX_WAITING} exports are being written already.",
                "Wait until one is ready.",
                status=409,
            )
        export = rows.create(
            tenant=acting.tenant,
            first=span.first,
            last=span.last,
            grain=grain,
            created_by=acting.user,
            created_by_key=acting.api_key,
        )
        audit.record(acting.actor, "export.request", export, tenant=acting.tenant)
        _queue(export)
    return export


def add_schedule(*, acting: Principal, cadence: Cadence, grain: Grain) -> ExportSchedule:
    """Have every week or month to come exported. Idempotent."""
    with transaction.atomic():
        schedule, created = ExportSchedule.objects.for_tenant(acting.tenant).get_or_create(
            tenant=acting.tenant, cadence=cadence, grain=grain, defaults={"created_by": acting.user}
        )
        if created:
            audit.record(acting.actor, "export_schedule.create", schedule, tenant=acting.tenant)
    return schedule


def delete_schedule(*, acting: Principal, schedule: ExportSchedule) -> None:
    """Delete a schedule; its exports stay. Idempotent."""
    with transaction.atomic():
        rows = ExportSchedule.objects.for_tenant(acting.tenant).filter(pk=schedule.pk)
        if (row := rows.select_for_update().first()) is not None:
            audit.record(acting.actor, "export_schedule.delete", row, tenant=acting.tenant)
            row.delete()


def run_schedules(now: date | None = None) -> int:
    """Request exports of the periods that ended, once for each schedule and period. Returns their number.

    Raises DeletionPausedError while the clock is not trusted: a month that is not over would be exported for good.
    """
    now = now or clocks.deletion_time().date()
    schedules = ExportSchedule.objects.select_related("tenant")
    # The oldest first: a worker that dies in between leaves a gap at the end, which the next run sees.
    due = ((schedule, span) for schedule in schedules for span in reversed(list(_missing(schedule, now))))
    return sum(_request_due(schedule, span) for schedule, span in due)


def _missing(schedule: ExportSchedule, now: date) -> Iterator[Span]:
    """Yield the periods that ended since the schedule was made or last requested an export, latest first.

    They are several after an outage of the workers. Periods that ended longer ago than `KEPT` are left out.
    """
    cadence = Cadence(schedule.cadence)
    requested = Export.objects.for_tenant(schedule.tenant).filter(schedule=schedule)
    span = last_whole(cadence, now)
    while span.last >= max(schedule.created_at.date(), now - KEPT):
        if requested.filter(first=span.first).exists():
            return
        yield span
        span = last_whole(cadence, span.first)


def _request_due(schedule: ExportSchedule, span: Span) -> bool:
    if not is_settled(span.last):
        return False  # the file is written once: it would lack what is not in the rollups yet
    with transaction.atomic():
        export, created = Export.objects.for_tenant(schedule.tenant).get_or_create(
            schedule=schedule,
            first=span.first,
            defaults={"tenant": schedule.tenant, "last": span.last, "grain": schedule.grain},
        )
        if created:
            audit.record(SYSTEM, "export.request", export, tenant=schedule.tenant)
            _queue(export)
    return created


def last_whole(cadence: Cadence, now: date) -> Span:
    """Return the last week (Monday to Sunday) or month that ended before `now`."""
    if cadence is Cadence.WEEK:
        monday = now - timedelta(days=now.weekday())
        return Span(monday - timedelta(days=7), monday - timedelta(days=1))
    last = now.replace(day=1) - timedelta(days=1)
    return Span(last.replace(day=1), last)


def _queue(export: Export) -> None:
    enqueue("reports.write_next")


def write_next() -> bool:
    """Write one export, chosen fairly among tenants. Returns False if none can be written now."""
    export = _claim_next()
    if export is None:
        return False
    with claims.keep(export):
        try:
            _write(export)
        except claims.ClaimLostError:
            logger.warning("Export %s is written by another worker.", export.pk)
    return True


def _claim_next() -> Export | None:
    """Claim the next export; one with too many attempts fails instead."""
    queue = fair_queue.FairQueue("exports", _waiting(), _running(), TENANT_EXPORTS)
    while queue.is_open():
        with transaction.atomic():
            export = queue.choose()
            if export is None:
                return None
            export.attempts += 1
            claims.take(export)
            if export.attempts <= MAX_ATTEMPTS:
                export.state = ExportState.RUNNING
                export.save(update_fields=["state", "attempts"])
                return export
            _end(export, ExportState.FAILED)
    return None


def _waiting() -> QuerySet[Export]:
    open_ = Export.objects.filter(claims.unclaimed(), state__in=[ExportState.QUEUED, ExportState.RUNNING])
    return open_.select_related("tenant").order_by("created_at")


def _running() -> QuerySet[Export]:
    return Export.objects.filter(claims.claimed(), state=ExportState.RUNNING)


def _write(export: Export) -> None:
    with _claimed(export):
        ExportPart.objects.filter(export=export).delete()
    for number, data in enumerate(_compressed(export)):
        with _claimed(export):
            ExportPart.objects.create(export=export, number=number, data=data)
        export.bytes += len(data)
    _end(export, ExportState.READY)


@contextmanager
def _claimed(export: Export) -> Iterator[None]:
    """Open a transaction in which no other worker can claim the export. Raises ClaimLostError if one has."""
    with transaction.atomic():
        locked = Export.objects.select_for_update(of=("self",)).filter(pk=export.pk).first()
        if locked is None or not claims.holds(export, locked):
            raise claims.ClaimLostError
        yield


def _compressed(export: Export) -> Iterator[bytes]:
    """Yield the gzip file in pieces of about a megabyte."""
    export.lines = export.bytes = 0
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    piece = b""
    for page in UsageTable(export.tenant, Span(export.first, export.last), Grain(export.grain)).pages():
        export.lines += page.count("\r\n")
        piece += packer.compress(page.encode())
        if len(piece) >= PART_BYTES:
            yield piece
            piece = b""
    export.lines -= 1  # the heading
    yield piece + packer.flush()


def _end(export: Export, state: ExportState) -> None:
    with _claimed(export):
        export.state, export.ready_at = state, timezone.now()
        export.save(update_fields=["state", "attempts", "ready_at", "lines", "bytes"])
        claims.end(export)
        audit.record(SYSTEM, f"export.{state.value}", export, tenant=export.tenant)
        if state is ExportState.READY:
            span = {"first": export.first.isoformat(), "last": export.last.isoformat(), "grain": export.grain}
            publish(export.tenant, EventType.EXPORT_READY, {"id": str(export.pk), **span, "lines": export.lines})


def forget() -> None:
    """Delete old exports with their files. Raises DeletionPausedError."""
    Export.objects.filter(created_at__lt=clocks.deletion_time() - KEPT).delete()
