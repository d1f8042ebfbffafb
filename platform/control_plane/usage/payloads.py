"""The JSON of a ledger row for live events, the same as in the REST API."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from control_plane.usage.costs import RequestCosts
from control_plane.usage.counters import SHOWN
from control_plane.usage.models import UsageEvent

_PLAIN = (
    "model", "streamed", "batch", "host", "error_code", "finish_reason", "adapter_loaded_from", *SHOWN
)  # fmt: skip


def request_json(event: UsageEvent, costs: RequestCosts) -> dict[str, Any]:
    """Once for every request of every tenant, so it does without the serializer; a test compares the two."""
    return {
        "id": event.request_id,
        "created_at": event.created_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "adapter": event.adapter.name if event.adapter else None,
        "version": event.version.number if event.version else None,
        "base_model": base_model_of(event),
        "key": event.api_key.name if event.api_key else None,
        "endpoint": str(event.endpoint),
        "outcome": str(event.outcome),
        **{name: getattr(event, name) for name in _PLAIN},
        "preemption_spans": spans_json(event),
        "cost_micros": costs.micros(event),
        "currency": costs.currency,
    }


def base_model_of(event: UsageEvent) -> str | None:
    """On which it ran; None of several adapters as one, of which the ledger has no version."""
    if event.version is not None:
        return event.version.base_model
    return None if event.adapter_id else event.model


def spans_json(event: UsageEvent) -> list[dict[str, int]]:
    return [{"at_ms": at_ms, "ms": ms} for at_ms, ms in event.preemption_spans or ()]
