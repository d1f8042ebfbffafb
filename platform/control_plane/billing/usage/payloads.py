"""The JSON of a ledger row for live events, the same as in the REST API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC
from typing import Any

from control_plane.billing.usage.costs import RequestCosts
from control_plane.billing.usage.counters import SHOWN
from control_plane.billing.usage.models import UsageEvent
from control_plane.fleet.base_models.models import BaseModel

_PLAIN = (
    "model", "streamed", "batch", "host", "error_code", "finish_reason", "adapter_loaded_from", *SHOWN
)  # fmt: skip


def request_json(event: UsageEvent, costs: RequestCosts, base_names: Mapping[int, str]) -> dict[str, Any]:
    """Return a request's event data. It is built for every request, so without the serializer; a test compares them."""
    return {
        "id": event.request_id,
        "created_at": event.created_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "adapter": event.adapter.name if event.adapter else None,
        "version": event.version.number if event.version else None,
        "base_model": base_model_of(event, base_names),
        "key": event.api_key.name if event.api_key else None,
        "endpoint": str(event.endpoint),
        "outcome": str(event.outcome),
        **{name: getattr(event, name) for name in _PLAIN},
        "preemption_spans": spans_json(event),
        "ignored": event.ignored or [],
        "schema_violations": event.schema_violations or [],
        "cost_micros": costs.micros(event),
        "currency": costs.currency,
    }


def base_names_of(rows: Iterable[UsageEvent]) -> dict[int, str]:
    """Return the current names of the rows' base models."""
    known = {row.base_model_id for row in rows if row.base_model_id is not None}
    return dict(BaseModel.objects.filter(pk__in=known).values_list("pk", "name")) if known else {}


def base_model_of(event: UsageEvent, base_names: Mapping[int, str]) -> str | None:
    """Return the base model of a request. Old rows have that of their version, and None for combined adapters."""
    if event.base_model_id is not None:
        return base_names.get(event.base_model_id)
    if event.version is not None:
        return event.version.base_model
    return None if event.adapter_id else event.model


def spans_json(event: UsageEvent) -> list[dict[str, int]]:
    return [{"at_ms": at_ms, "ms": ms} for at_ms, ms in event.preemption_spans or ()]
