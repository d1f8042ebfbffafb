"""The JSON of a staging for live events, and of a host's trial of a version."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from rest_framework import serializers

from control_plane.adapters.registry.models import AgreementOutcome, DtypeOutcome, EffectVerdict, VersionState
from control_plane.adapters.registry.payloads import plain
from control_plane.adapters.registry.serializers import (
    DtypeReportSerializer,
    PlacementSerializer,
    VersionEffectSerializer,
)
from control_plane.fleet.placements.models import Placement
from lora_engine.wire import engine_pb2 as pb


class StagingSerializer(serializers.Serializer[Any]):
    """Data of the live event `adapter.staging`."""

    adapter = serializers.CharField(source="version.adapter.name")
    version = serializers.IntegerField(source="version.number")
    state = serializers.ChoiceField(choices=VersionState.choices, source="version.state")
    placement = PlacementSerializer(source="*")


def staging_json(placement: Placement) -> dict[str, Any]:
    """Return a placement's event data. It must be loaded with its host, version and the version's adapter."""
    return plain(StagingSerializer(placement).data)


def effect_json(effect: pb.AdapterEffect, host: str) -> dict[str, Any]:
    """Return the trial of a version for `AdapterVersion.effect`."""
    pairs = [pair for prompt in effect.prompts for pair in zip(prompt.adapter_tokens, prompt.base_tokens, strict=False)]
    result = {
        "verdict": EffectVerdict(pb.AdapterEffect.Verdict.Name(effect.verdict).lower()),
        "largest_change": max((prompt.largest_change for prompt in effect.prompts), default=0.0),
        "tokens": len(pairs),
        "differing_tokens": sum(token != base for token, base in pairs),
        "layer_changes": list(effect.layer_changes),
        "prompts": list(effect.prompts),
        "agreement": _agreement(effect.agreement) if effect.HasField("agreement") else None,
        "host": host,
        "elapsed_ms": effect.elapsed_ms,
        "at": timezone.now(),
    }
    return plain(VersionEffectSerializer(result).data)


def dtype_report_json(report: pb.DtypeReport) -> dict[str, Any]:
    """Return the comparison of dtypes for `Placement.dtype_report`."""
    result = {
        "outcome": DtypeOutcome(pb.DtypeReport.Outcome.Name(report.outcome).lower()),
        "reason": report.reason,
        "tokens": report.tokens,
        "agreeing": report.agreeing,
        "mean_distance": report.mean_distance,
        "largest_distance": report.largest_distance,
        "least_agreeing": round(report.least_agreeing, 6),  # a bound, which float32 has as 0.8999999762
        "most_distance": round(report.most_distance, 6),
        "elapsed_ms": report.elapsed_ms,
        "at": timezone.now(),
    }
    return plain(DtypeReportSerializer(result).data)


def _agreement(agreement: pb.Agreement) -> dict[str, Any]:
    measured = agreement.HasField("adapter")
    return {
        "outcome": AgreementOutcome(pb.Agreement.Outcome.Name(agreement.outcome).lower()),
        "reason": agreement.reason,
        "dequantised": agreement.dequantised,
        "base": agreement.base if measured else None,
        "adapter": agreement.adapter if measured else None,
        "prompts": list(agreement.prompts),
        "layer_changes": list(agreement.layer_changes),
        "elapsed_ms": agreement.elapsed_ms,
    }
