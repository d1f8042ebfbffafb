"""The JSON of a ledger row for live events, the same as in the REST API."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from control_plane.usage.counters import SHOWN
from control_plane.usage.models import UsageEvent

_PLAIN = ("model", "streamed", "batch", "host", "error_code", *SHOWN)


def request_json(event: UsageEvent) -> dict[str, Any]:
    """Once for every request of every tenant, so it does without the serializer; a test compares the two."""
    return {
        "id": event.request_id,
        "created_at": event.created_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "adapter": event.adapter.name if event.adapter else None,
        "version": event.version.number if event.version else None,
        "key": event.api_key.name if event.api_key else None,
        "endpoint": str(event.endpoint),
        "outcome": str(event.outcome),
        **{name: getattr(event, name) for name in _PLAIN},
    }
