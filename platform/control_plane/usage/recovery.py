"""Usage that its web process never acknowledged: from the engine's journal to the ledger."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime

from django.core.exceptions import ValidationError
from django.db import transaction

from control_plane.accounts.models import User
from control_plane.adapters.models import AdapterVersion
from control_plane.fleet.blocking_client import EngineCalls, engine_calls
from control_plane.fleet.endpoint import Endpoint
from control_plane.fleet.models import EngineHost
from control_plane.keys.models import ApiKey
from control_plane.tenants.models import Tenant
from control_plane.usage import request_ids
from control_plane.usage.actions import Counts, record_event
from control_plane.usage.models import AbandonedTry, Outcome
from control_plane.usage.request_ids import Asker
from lora_engine.wire import engine_pb2 as pb

logger = logging.getLogger(__name__)

PAGE = 500
# A living web process stores usage within a second and knows more of the request than the journal does.
LEAVE_TO_WEB_S = 20.0


def counts_of(record: pb.UsageRecord) -> Counts:
    return Counts(
        prompt_tokens=record.prompt_tokens,
        cached_prompt_tokens=record.cached_prompt_tokens,
        completion_tokens=record.completion_tokens,
        queue_ms=record.queue_ms,
        adapter_load_ms=record.adapter_load_ms,
        first_token_ms=record.first_token_ms,
        prefill_ms=record.prefill_ms,
        decode_ms=record.decode_ms,
        preemptions=record.preemptions,
        device_us=record.device_us,
    )


def recover_usage(endpoint: Endpoint, *, leave_to_web_s: float = LEAVE_TO_WEB_S) -> int:
    """Store and acknowledge what lies in the host's journal. Returns how many events were new.

    Raises ``HostError`` if the host does not answer; what was stored before stays stored.
    """
    new = 0
    with engine_calls(endpoint) as engine:
        after = 0
        while records := engine.pull_usage(after, PAGE):
            after = max(record.seq for record in records)
            settled = [record for record in records if record.finished_unix < time.time() - leave_to_web_s]
            new += _store(engine, endpoint.name, settled)
    return new


def _store(engine: EngineCalls, host: str, records: list[pb.UsageRecord]) -> int:
    if not records:
        return 0
    with transaction.atomic():
        ids = [record.request_id for record in records]
        abandoned = set(AbandonedTry.objects.filter(engine_id__in=ids).values_list("engine_id", flat=True))
        new = sum(_record(host, record) for record in records if record.request_id not in abandoned)
    # Only after the commit: a record acknowledged too early would be lost with this process.
    engine.acknowledge([record.request_id for record in records])
    return new


def _record(host: str, record: pb.UsageRecord) -> bool:
    asker = request_ids.parse(record.request_id)
    tenant = _tenant(record.tenant)
    if asker is None or tenant is None:
        logger.error("usage %s of %s belongs to no tenant of this installation", record.request_id, host)
        return False
    version = _version(tenant, record.adapter_digest)
    return record_event(
        request_id=request_ids.of_request(record.request_id),
        tenant=tenant,
        api_key=_key(tenant, asker),
        user=User.objects.filter(pk=asker.user_id).first() if asker.user_id else None,
        adapter=version.adapter if version else None,
        version=version,
        model=str((version and f"{version.adapter.name}@v{version.number}") or _base_name(host)),
        endpoint=asker.endpoint,
        streamed=asker.streamed,
        host=host,
        outcome=record.outcome,
        error_code=record.error_code,
        created_at=datetime.fromtimestamp(record.submitted_unix, UTC),
        counts=_billed(record),
    )


def _billed(record: pb.UsageRecord) -> Counts:
    """What a caller received of a request that failed, its web process has taken along."""
    counts = counts_of(record)
    return counts.billed_for(0) if record.outcome in (Outcome.FAILED, Outcome.REFUSED) else counts


def _tenant(tenant_id: str) -> Tenant | None:
    try:
        return Tenant.objects.filter(pk=tenant_id).first()
    except ValidationError:
        return None


def _key(tenant: Tenant, asker: Asker) -> ApiKey | None:
    return ApiKey.objects.for_tenant(tenant).filter(pk=asker.key_id).first() if asker.key_id else None


def _version(tenant: Tenant, digest: str) -> AdapterVersion | None:
    versions = AdapterVersion.objects.for_tenant(tenant).select_related("adapter")
    return versions.filter(digest=digest).order_by("-created_at").first() if digest else None


def _base_name(host: str) -> str:
    description = EngineHost.objects.filter(name=host).values_list("description", flat=True).first() or {}
    return str(description.get("base_model", ""))
