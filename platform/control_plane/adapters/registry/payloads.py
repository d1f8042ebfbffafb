"""JSON of adapters and uploads in live events, the same as in the REST API."""

from __future__ import annotations

import json
from typing import Any, cast

from rest_framework.utils.encoders import JSONEncoder

from control_plane.adapters.registry import queries
from control_plane.adapters.registry.models import Adapter
from control_plane.adapters.registry.serializers import AdapterSerializer, UploadSerializer
from control_plane.adapters.uploads.models import Upload
from control_plane.core.storable import storable


def upload_json(upload: Upload) -> dict[str, Any]:
    return plain(UploadSerializer(queries.get_upload(upload.tenant, upload.pk)).data)


def adapter_json(adapter: Adapter) -> dict[str, Any]:
    """Return the adapter with its versions; for an archived one only `{name, status}`."""
    if adapter.archived_at is not None:
        return {"name": adapter.name, "status": queries.AdapterStatus.ARCHIVED.value}
    return plain(AdapterSerializer(queries.get_adapter(adapter.tenant, adapter.name)).data)


# The largest 32-bit number, in place of numbers that JSON, databases and browsers do not accept.
LARGEST = 3.4028234e38
_FINITE = {"Infinity": LARGEST, "-Infinity": -LARGEST, "NaN": LARGEST}


def plain(data: Any) -> dict[str, Any]:
    """Return the data as dicts, lists, storable strings and finite numbers, for databases and channel layers."""
    plain: dict[str, Any] = json.loads(json.dumps(data, cls=JSONEncoder), parse_constant=_FINITE.__getitem__)
    return cast(dict[str, Any], storable(plain))
