"""The JSON of a staging for live events."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from control_plane.adapters.models import VersionState
from control_plane.adapters.payloads import plain
from control_plane.adapters.serializers import PlacementSerializer
from control_plane.placements.models import Placement


class StagingSerializer(serializers.Serializer[Any]):
    """Data of the live event `adapter.staging`."""

    adapter = serializers.CharField(source="version.adapter.name")
    version = serializers.IntegerField(source="version.number")
    state = serializers.ChoiceField(choices=VersionState.choices, source="version.state")
    placement = PlacementSerializer(source="*")


def staging_json(placement: Placement) -> dict[str, Any]:
    """For a placement loaded with its host, version and the version's adapter."""
    return plain(StagingSerializer(placement).data)
