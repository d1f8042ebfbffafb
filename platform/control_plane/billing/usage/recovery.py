"""Usage that its web process never acknowledged: from the engine's journal to the ledger."""

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
from control_plane.fleet.hosts.models import BaseModel, EngineHost
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

PAGE = 500
LONGEST_S = 60.0
"""Of one host: others wait behind it."""
# A journal may have been away for long, and the clock of its host may be wrong. A request that came in later than now
# is counted as of now.
OLDEST_S = LATEST_S = 400 * 86_400.0
# How far the clock of a host that is synchronised may be ahead.
AHEAD_S = 60.0
# A living web process stores usage within a second and knows more of the request than the journal does.
LEAVE_TO_WEB_S = 20.0


def recover_usage(endpoint: HostEndpoint, *, leave_to_web_s: float = LEAVE_TO_WEB_S) -> int:
    """Store and acknowledge what lies in the host's journal. Returns how many events were new.

    Raises ``HostError`` if the host does not answer; what was stored before stays stored.
    """
    new = 0
    with engine_calls(endpoint) as engine:
        after, until = 0, time.monotonic() + LONGEST_S
        while time.monotonic() < until:  # what is left is pulled next time
            records = engine.pull_usage(after, PAGE)
            if not records:
                break
            before, after = after, max(record.seq for record in records)
            if after <= before:
                raise implausible(endpoint.name, "its journal does not go on")
            # By the host's clock. A record that is later than now is no fresh one: that clock is ahead.
            now = clocks.database_time().timestamp()
            since, latest = now - leave_to_web_s, now + AHEAD_S
            settled = [record for record in records if not since <= record.finished_unix <= latest]
            new += _store(engine, endpoint.name, settled)
    return new


def _store(engine: EngineCalls, host: str, records: list[pb.UsageRecord]) -> int:
    """In one transaction, with as many queries for a page as for a record of each tenant."""
    if not records:
        return 0
    ids = [record.request_id for record in records]
    now = clocks.database_time().timestamp()
    known = [record for record in records if _is_plausible(host, record, now)]
    with transaction.atomic():
        tries = AbandonedTry.objects.filter(engine_id__in=[record.request_id for record in known])
        abandoned = set(tries.values_list("engine_id", flat=True))
        new = record_events(_ended(host, [record for record in known if not _is_told(record, abandoned)]))
    # Only after the commit: a record acknowledged too early would be lost with this process.
    engine.acknowledge(ids)
    return new


def _is_plausible(host: str, record: pb.UsageRecord, now: float) -> bool:
    """What is not is logged and gone: no row can be made of it."""
    try:
        require_plausible(host, record)
        if record.outcome not in Outcome.values or not now - OLDEST_S < record.submitted_unix < now + LATEST_S:
            raise implausible(host, f"outcome {record.outcome!r} at {record.submitted_unix}")
    except HostError as error:
        logger.error("usage %r is not counted: %s", record.request_id[:64], error)
        return False
    return True


def _is_told(record: pb.UsageRecord, abandoned: set[str]) -> bool:
    """Whether the ledger gets it from elsewhere, or must not get it. A line of a batch gets there with its result, by
    one transaction; one without a result is run again."""
    origin = request_ids.parse(record.request_id)
    return record.request_id in abandoned or (origin is not None and origin.batch)


def _ended(host: str, records: Iterable[pb.UsageRecord]) -> list[Ended]:
    by_tenant: defaultdict[str, list[pb.UsageRecord]] = defaultdict(list)
    for record in records:
        by_tenant[record.tenant].append(record)
    base = _base_of(host)
    tenants = _tenants(by_tenant)
    found: dict[str, Ended] = {}
    for tenant_id, own in by_tenant.items():
        lookup = _Lookup(tenants[tenant_id], own) if tenant_id in tenants else None
        for record in own:
            origin = request_ids.parse(record.request_id)
            if lookup is None or origin is None or not request_ids.is_of(record.request_id, tenant_id):
                logger.error("usage %s of %s is of no request of this installation", record.request_id, host)
                continue
            ended = lookup.ended(record, origin, host, base)
            found.setdefault(ended.request_id, ended)
    return list(found.values())


def _tenants(ids: Iterable[str]) -> dict[str, Tenant]:
    """By the text that the engine was given; what is no id is nobody's."""
    known: dict[str, UUID] = {}
    for text in ids:
        with suppress(ValueError):
            known[text] = UUID(text)
    rows = Tenant.objects.in_bulk(known.values())
    return {text: rows[tenant_id] for text, tenant_id in known.items() if tenant_id in rows}


@dataclass(frozen=True)
class _Base:
    """What a host serves."""

    pk: int | None
    name: str
    adapters_of: frozenset[str] = frozenset()
    """Base digests of the adapters that run on it."""


class _Lookup:
    """What the records of one tenant refer to, within the tenant's own rows."""

    def __init__(self, tenant: Tenant, records: Iterable[pb.UsageRecord]) -> None:
        origins = [origin for record in records if (origin := request_ids.parse(record.request_id))]
        digests = {digest for record in records for digest in digests_of(record.adapter_digest)} - {""}
        versions = AdapterVersion.objects.for_tenant(tenant).filter(digest__in=digests)
        self._tenant, self._now = tenant, clocks.database_time()
        self._keys = ApiKey.objects.for_tenant(tenant).in_bulk({one.key_id for one in origins if one.key_id})
        self._users = User.objects.in_bulk({one.user_id for one in origins if one.user_id})
        # The newest with the content.
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
        """That of its adapter, where the host serves another one meanwhile."""
        if version is None or version.base_digest in base.adapters_of:
            return base.pk
        return self._bases.get(version.base_digest, base.pk)


def _billed(record: pb.UsageRecord) -> Counts:
    """What a caller received of a request that failed, its web process has taken along."""
    counts = Counts.of(record)
    return counts.billed_for(0) if record.outcome in (Outcome.FAILED, Outcome.REFUSED) else counts


def _base_of(host: str) -> _Base:
    """As operators call it, or else as the engine does."""
    description = EngineHost.objects.filter(name=host).values_list("description", flat=True).first() or {}
    row = BaseModel.objects.filter(digest=description.get("base_digest", "")).first()
    if row is None:
        return _Base(None, str(description.get("base_model", "")))
    return _Base(row.pk, row.name, frozenset((row.digest, *row.adapters_of)))
