"""Actions that append to the usage ledger."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from functools import partial

from django.db import transaction

from control_plane.adapters.registry.models import Adapter, AdapterVersion
from control_plane.adapters.registry.versions import mark_version_overflowed
from control_plane.billing.usage import watermark
from control_plane.billing.usage.costs import RequestCosts
from control_plane.billing.usage.counters import NO_DETAILS, Counts, Details
from control_plane.billing.usage.ledger_archive import ArchivedMeanwhileError, LateRequests
from control_plane.billing.usage.models import AbandonedTry, Outcome, UsageEvent
from control_plane.billing.usage.payloads import base_names_of, request_json
from control_plane.core.jobs import clocks
from control_plane.core.writes import announce
from control_plane.identity.accounts.models import User
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.models import Tenant

OVERFLOW = "adapter_overflow"  # the engine's error code
# Time for which abandoned attempts are kept: a host that was away brings its journal within that time.
ABANDONED_KEPT = timedelta(days=7)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A request that has ended, with its caller and its counts."""

    request_id: str
    tenant: Tenant
    model: str
    endpoint: str
    outcome: str
    created_at: datetime
    counts: Counts
    details: Details = NO_DETAILS
    api_key: ApiKey | None = None
    user: User | None = None
    adapter: Adapter | None = None
    version: AdapterVersion | None = None
    base_model_id: int | None = None
    streamed: bool = False
    batch: bool = False
    host: str = ""
    error_code: str = ""

    def row(self) -> UsageEvent:
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        counts, details = vars(plain.pop("counts")), {**vars(plain.pop("details"))}
        plain |= {"model": self.model[:200], "outcome": Outcome(self.outcome), "error_code": self.error_code[:64]}
        spans = list(map(list, self.details.preemption_spans)) or None
        details |= {
            "preemption_spans": spans,
            "ignored": list(self.details.ignored) or None,
            "schema_violations": list(self.details.schema_violations) or None,
        }
        return UsageEvent(**plain, **counts, **details)


def record_events(ended: Sequence[Ended]) -> int:
    """Append each request's usage once, however often it is reported. Returns the number of new rows.

    The rows need no audit rows: they are a record themselves. Raises OSError if one is so old that it may be archived,
    and the archive cannot be read.
    """
    while True:
        with suppress(ArchivedMeanwhileError):
            return _record(ended)


def _record(ended: Sequence[Ended]) -> int:
    by_id = {one.request_id: one for one in ended}
    late = LateRequests({one.request_id: one.created_at for one in ended})
    archived = late.recorded()
    with transaction.atomic():
        watermark.announce_writer()
        known = UsageEvent.objects.filter(request_id__in=by_id).values_list("request_id", flat=True)
        new = by_id.keys() - set(known) - archived
        late.require_current()
        rows = [by_id[request_id].row() for request_id in new]
        # Another process may be storing the same request from the host's journal: the first row counts.
        UsageEvent.objects.bulk_create(rows, ignore_conflicts=True)
        costs, base_names = RequestCosts(rows), base_names_of(rows)
        for row in rows:
            announce(row.tenant_id, "usage.tick", partial(request_json, row, costs, base_names))
        transaction.on_commit(partial(_mark_overflowed, rows), robust=True)
    return len(rows)


def _mark_overflowed(rows: Sequence[UsageEvent]) -> None:
    """Mark versions whose requests overflowed, after the commit: the ledger must not wait for locks on versions."""
    overflowed = {row.version.pk for row in rows if row.error_code == OVERFLOW and row.version}
    for version in AdapterVersion.objects.filter(pk__in=overflowed, overflowed_at=None) if overflowed else ():
        mark_version_overflowed(version)


def abandon_attempts(engine_ids: Sequence[str]) -> None:
    """Record attempts that are not billed: another host replaced them, or their request was refused."""
    now = clocks.database_time()
    rows = [AbandonedTry(engine_id=one, created_at=now) for one in engine_ids]
    AbandonedTry.objects.bulk_create(rows, ignore_conflicts=True)


def forget_abandoned_attempts() -> int:
    """Delete attempts that no journal can report any more. Returns their number. Raises DeletionPausedError."""
    return AbandonedTry.objects.filter(created_at__lt=clocks.deletion_time() - ABANDONED_KEPT).delete()[0]
