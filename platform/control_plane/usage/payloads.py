"""The JSON of a ledger row for live events, the same as in the REST API."""

from __future__ import annotations

import json
from typing import Any

from rest_framework.utils.encoders import JSONEncoder

from control_plane.usage.models import UsageEvent
from control_plane.usage.serializers import RequestSerializer


def request_json(event: UsageEvent) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(RequestSerializer(event).data, cls=JSONEncoder))
    return plain
