"""Recovery of usage that no web process acknowledged: from the engine's journal to the ledger."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from django.db import transaction

from control_plane.adapters.registry.models import AdapterVersion
from control_plane.adapters.registry.resolve import combined_name
from control_plane.billing.usage import request_ids
from control_plane.billing.usage.actions import Ended, record_events
from control_plane.billing.usage.counters import Counts, Details
from control_plane.billing.usage.models import AbandonedTry, Outcome
from control_plane.billing.usage.request_ids import RequestOrigin
from control_plane.core.jobs import clocks
from control_plane.fleet.base_models.models import BaseModel
from control_plane.fleet.hosts.host_clock import MAX_DIFFERENCE_S
from control_plane.fleet.hosts.models import EngineHost
from control_plane.fleet.transport.blocking_client import EngineCalls, engine_calls
from control_plane.fleet.transport.endpoint import HostEndpoint
from control_plane.fleet.transport.errors import HostError
from control_plane.fleet.transport.plausible import implausible, require_plausible
from control_plane.identity.accounts.models import User
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.models import Tenant
from lora_engine.peft_format import digests_of, is_combined, parts_of
from lora_engine.wire import engine_pb2 as pb

logger = logging.getLogger(__name__)

# Records that one call returns.
PAGE = 500
# Maximum seconds spent on one host: others wait behind it.
LONGEST_S = 60.0
# Seconds that a request may lie in the past or future: a journal may have been away for long, and its host's clock may
# be wrong. A request from the future is counted as of now.
OLDEST_S = LATEST_S = 400 * 86_400.0
# Seconds that the clock of a synchronised host may be ahead.
AHEAD_S = 60.0
# Seconds that a record is left to its web process, which stores it within one and knows more of the request.
LEAVE_TO_WEB_S = 20.0


def recover_usage(endpoint: HostEndpoint, *, leave_to_web_s: float = LEAVE_TO_WEB_S) -> int:
    """Store and acknowledge the records in a host's journal. Returns the number of new events.

    Raises ``HostError`` if the host does not answer; records that were stored before stay stored.
    """
    new = 0
    with engine_calls(endpoint) as engine:
        after, until, ahead_s = 0, time.monotonic() + LONGEST_S, _clock_ahead_s(endpoint.name)
        while time.monotonic() < until:  # the next run pulls the rest
            records = engine.pull_usage(after, PAGE)
            if not records:
                break
            before, after = after, max(record.seq for record in records)
            if after <= before:
                raise implausible(endpoint.name, "its journal repeats a record")
            for record in records:
                record.submitted_unix -= ahead_s
                record.finished_unix -= ahead_s
            # By the host's clock, less its difference if known. A record from the future is not recent: the clock is
            # ahead.
            now = clocks.database_time().timestamp()
            since, latest = now - leave_to_web_s, now + AHEAD_S
            settled = [record for record in records if not since <= record.finished_unix <= latest]
            new += _store(engine, endpoint.name, settled)
    return new


def _clock_ahead_s(host: str) -> float:
    """Return how far a host's clock is ahead of the database's, if by more than a second; else 0.

    The ledger's times are the database's. A host's difference is the one that its last heartbeats showed.
    """
    status = EngineHost.objects.filter(name=host).values_list("last_status", flat=True).first() or {}
    ahead_s = status.get("clock_ahead_s") or 0.0
    return float(ahead_s) if MAX_DIFFERENCE_S < abs(ahead_s) < LATEST_S else 0.0


def _store(engine: EngineCalls, host: str, records: list[pb.UsageRecord]) -> int:
    """Store a page in one transaction. The number of queries depends on its tenants, not on its records."""
    if not records:
        return 0
    ids = [record.request_id for record in records]
    now = clocks.database_time().timestamp()
    known = [record for record in records if _is_plausible(host, record, now)]
    with transaction.atomic():
        tries = AbandonedTry.objects.filter(engine_id__in=[record.request_id for record in known])
        abandoned = set(tries.values_list("engine_id", flat=True))
        new = record_events(_ended(host, [record for record in known if not _is_stored_elsewhere(record, abandoned)]))
    # Only after the commit: a record that is acknowledged too early would be lost with this process.
    engine.acknowledge(ids)
    return new


def _is_plausible(host: str, record: pb.UsageRecord, now: float) -> bool:
    """Return whether a record can be stored. One that cannot is logged and dropped."""
    try:
        require_plausible(host, record)
        if record.outcome not in Outcome.values or not now - OLDEST_S < record.submitted_unix < now + LATEST_S:
            raise implausible(host, f"outcome {record.outcome!r} at {record.submitted_unix}")
    except HostError as error:
        logger.error("Usage %r is not counted: %s", record.request_id[:64], error)
        return False
    return True


def _is_stored_elsewhere(record: pb.UsageRecord, abandoned: set[str]) -> bool:
    """Return whether the ledger gets the record from elsewhere, or must not get it.

    A line of a batch is stored with its result, in one transaction; a line without a result is run again.
    """
    origin = request_ids.parse(record.request_id)
    return record.request_id in abandoned or (origin is not None and origin.batch)


def _ended(host: str, records: Iterable[pb.UsageRecord]) -> list[Ended]:
    by_tenant: defaultdict[str, list[pb.UsageRecord]] = defaultdict(list)
    for record in records:
        by_tenant[record.tenant].append(record)
    base = _base_of(host)
    tenants = _tenants(by_tenant)
    result: dict[str, Ended] = {}
    for tenant_id, rows in by_tenant.items():
        lookup = _Lookup(tenants[tenant_id], rows) if tenant_id in tenants else None
        for record in rows:
            origin = request_ids.parse(record.request_id)
            if lookup is None or origin is None or not request_ids.is_of(record.request_id, tenant_id):
                logger.error("Usage %s of %s belongs to no request of this installation", record.request_id, host)
                continue
            ended = lookup.ended(record, origin, host, base)
            result.setdefault(ended.request_id, ended)
    return list(result.values())


def _tenants(ids: Iterable[str]) -> dict[str, Tenant]:
    """Return the tenants by the ids that the engine reported; other texts are skipped."""
    known: dict[str, UUID] = {}
    for text in ids:
        with suppress(ValueError):
            known[text] = UUID(text)
    rows = Tenant.objects.in_bulk(known.values())
    return {text: rows[tenant_id] for text, tenant_id in known.items() if tenant_id in rows}


@dataclass(frozen=True)
class _Base:
    """The base model that a host serves, with the base digests of the adapters that run on it."""

    pk: int | None
    name: str
    adapters_of: frozenset[str] = frozenset()


class _Lookup:
    """The rows of one tenant that its records refer to."""

    def __init__(self, tenant: Tenant, records: Iterable[pb.UsageRecord]) -> None:
        origins = [origin for record in records if (origin := request_ids.parse(record.request_id))]
        digests = {digest for record in records for digest in digests_of(record.adapter_digest)} - {""}
        versions = AdapterVersion.objects.for_tenant(tenant).filter(digest__in=digests)
        self._tenant, self._now = tenant, clocks.database_time()
        self._keys = ApiKey.objects.for_tenant(tenant).in_bulk({one.key_id for one in origins if one.key_id})
        self._users = User.objects.in_bulk({one.user_id for one in origins if one.user_id})
        # The newest version with each content.
        self._versions = {row.digest: row for row in versions.select_related("adapter").order_by("created_at")}
        of_versions = BaseModel.objects.filter(digest__in={row.base_digest for row in self._versions.values()})
        self._bases = dict(of_versions.values_list("digest", "pk"))

    def ended(self, record: pb.UsageRecord, origin: RequestOrigin, host: str, base: _Base) -> Ended:
        parts = [(self._versions.get(part.digest), part.weight) for part in parts_of(record.adapter_digest)]
        known = [(version, weight) for version, weight in parts if version]
        first = known[0][0] if known else None
        alone = first if not is_combined(record.adapter_digest) else None
        name = f"{first.adapter.name}@v{first.number}" if alone and first else combined_name(known)
        return Ended(
            request_id=request_ids.of_request(record.request_id),
            tenant=self._tenant,
            api_key=self._keys.get(origin.key_id) if origin.key_id else None,
            user=self._users.get(origin.user_id) if origin.user_id else None,
            adapter=first.adapter if first else None,
            version=alone,
            base_model_id=self._base_of(first, base),
            model=name or base.name,
            endpoint=origin.endpoint,
            streamed=origin.streamed,
            host=host,
            outcome=record.outcome,
            error_code=record.error_code,
            created_at=min(self._now, datetime.fromtimestamp(record.submitted_unix, UTC)),
            counts=_billed(record),
            details=Details.of(record),
        )

    def _base_of(self, version: AdapterVersion | None, base: _Base) -> int | None:
        """Return the record's base model: the host's, or the version's if the host serves another one by now."""
        if version is None or version.base_digest in base.adapters_of:
            return base.pk
        return self._bases.get(version.base_digest, base.pk)


def _billed(record: pb.UsageRecord) -> Counts:
    """Return the billed counts. The caller's output of a failed request is known to the web process only."""
    counts = Counts.of(record)
    return counts.billed_for(0) if record.outcome in (Outcome.FAILED, Outcome.REFUSED) else counts


def _base_of(host: str) -> _Base:
    """Return a host's base model by its row, or else by the engine's description."""
    description = EngineHost.objects.filter(name=host).values_list("description", flat=True).first() or {}
    row = BaseModel.objects.filter(digest=description.get("base_digest", "")).first()
    if row is None:
        return _Base(None, str(description.get("base_model", "")))
    return _Base(row.pk, row.name, frozenset((row.digest, *row.adapters_of)))
