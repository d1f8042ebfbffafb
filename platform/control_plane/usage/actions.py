"""Appending to the usage ledger."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime

from django.db import transaction

from control_plane.accounts.models import User
from control_plane.adapters.models import Adapter, AdapterVersion
from control_plane.keys.models import ApiKey
from control_plane.tenants.models import Tenant
from control_plane.usage import watermark
from control_plane.usage.models import Outcome, UsageEvent
from control_plane.usage.payloads import request_json
from control_plane.writes import announce


@dataclass(frozen=True)
class Counts:
    """What the engine counted. Times are milliseconds, but for `device_us`."""

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    completion_tokens: int = 0
    queue_ms: int = 0
    adapter_load_ms: int = 0
    first_token_ms: int = 0
    prefill_ms: int = 0
    decode_ms: int = 0
    preemptions: int = 0
    device_us: int = 0


def record_event(
    *,
    request_id: str,
    tenant: Tenant,
    model: str,
    endpoint: str,
    outcome: str,
    created_at: datetime,
    counts: Counts,
    api_key: ApiKey | None = None,
    user: User | None = None,
    adapter: Adapter | None = None,
    version: AdapterVersion | None = None,
    streamed: bool = False,
    host: str = "",
    error_code: str = "",
) -> bool:
    """Append the request's usage once: a second call with the same `request_id` changes nothing and returns False.

    The row is its own record of who did what, so it has no audit row.
    """
    with transaction.atomic():
        watermark.announce_writer()
        event, created = UsageEvent.objects.get_or_create(
            request_id=request_id,
            defaults={
                "tenant": tenant,
                "api_key": api_key,
                "user": user,
                "adapter": adapter,
                "version": version,
                "model": model[:200],
                "endpoint": endpoint,
                "outcome": Outcome(outcome),
                "streamed": streamed,
                "host": host,
                "error_code": error_code[:64],
                "created_at": created_at,
                **asdict(counts),
            },
        )
        if created:
            announce(tenant.pk, "usage.tick", lambda: request_json(event))
    return created
