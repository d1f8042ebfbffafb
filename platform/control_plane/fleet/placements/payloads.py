"""The JSON of a staging for live events, and of what a host says of a version."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from rest_framework import serializers

from control_plane.adapters.registry.models import AgreementOutcome, EffectVerdict, VersionState
from control_plane.adapters.registry.payloads import plain
from control_plane.adapters.registry.serializers import PlacementSerializer, VersionEffectSerializer
from control_plane.fleet.placements.models import Placement
from lora_engine.wire import engine_pb2 as pb


class StagingSerializer(serializers.Serializer[Any]):
    """Data of the live event `adapter.staging`."""

    adapter = serializers.CharField(source="version.adapter.name")
    version = serializers.IntegerField(source="version.number")
    state = serializers.ChoiceField(choices=VersionState.choices, source="version.state")
    placement = PlacementSerializer(source="*")


def staging_json(placement: Placement) -> dict[str, Any]:
    """For a placement loaded with its host, version and the version's adapter."""
    return plain(StagingSerializer(placement).data)


def effect_json(effect: pb.AdapterEffect, host: str) -> dict[str, Any]:
    """What `AdapterVersion.effect` holds."""
    pairs = [pair for prompt in effect.prompts for pair in zip(prompt.adapter_tokens, prompt.base_tokens, strict=False)]
    found = {
        "verdict": EffectVerdict(pb.AdapterEffect.Verdict.Name(effect.verdict).lower()),
        "largest_change": max((prompt.largest_change for prompt in effect.prompts), default=0.0),
        "tokens": len(pairs),
        "differing_tokens": sum(own != base for own, base in pairs),
        "layer_changes": list(effect.layer_changes),
        "prompts": list(effect.prompts),
        "agreement": _agreement(effect.agreement) if effect.HasField("agreement") else None,
        "host": host,
        "elapsed_ms": effect.elapsed_ms,
        "at": timezone.now(),
    }
    return plain(VersionEffectSerializer(found).data)


def _agreement(found: pb.Agreement) -> dict[str, Any]:
    measured = found.HasField("adapter")
    return {
        "outcome": AgreementOutcome(pb.Agreement.Outcome.Name(found.outcome).lower()),
        "reason": found.reason,
        "dequantised": found.dequantised,
        "base": found.base if measured else None,
        "adapter": found.adapter if measured else None,
        "prompts": list(found.prompts),
        "layer_changes": list(found.layer_changes),
        "elapsed_ms": found.elapsed_ms,
    }
