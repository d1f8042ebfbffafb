"""Views of staging on all hosts, for operators."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.core.http.serializers import CONFLICT, ProblemSerializer, read_query
from control_plane.fleet.hosts.models import StagingPhase
from control_plane.fleet.placements import actions
from control_plane.fleet.placements.queries import WAITS_FOR, staging_page
from control_plane.identity.access.operator import OperatorView


class StagingQuerySerializer(serializers.Serializer[Any]):
    phase = serializers.ChoiceField(
        choices=StagingPhase.choices,
        required=False,
        default="",
        allow_blank=True,
        help_text="Phase of the placements to return; empty: all that are not ready.",
    )
    host = serializers.CharField(max_length=64, required=False, default="", allow_blank=True)
    search = serializers.CharField(max_length=120, required=False, default="", allow_blank=True)
    offset = serializers.IntegerField(min_value=0, max_value=1_000_000, required=False, default=0)
    limit = serializers.IntegerField(min_value=1, max_value=200, required=False, default=50)


class StagingRowSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    tenant = serializers.CharField()
    adapter = serializers.CharField()
    version = serializers.IntegerField()
    host = serializers.CharField()
    phase = serializers.ChoiceField(choices=StagingPhase.choices)
    waits_for = serializers.ChoiceField(
        choices=WAITS_FOR,
        allow_null=True,
        help_text="Why the staging makes no progress now; null: a worker stages it, or it is ready.",
    )
    bytes_done = serializers.IntegerField()
    bytes_total = serializers.IntegerField()
    bytes_per_second = serializers.IntegerField(
        help_text="Current rate of the transfer in bytes per second; 0: no bytes are moving."
    )
    remaining_s = serializers.FloatField(
        allow_null=True,
        help_text="Seconds until all bytes are transferred, at the current rate; null: no bytes are moving.",
    )
    attempts = serializers.IntegerField(help_text="Number of staging attempts since the placement was last queued.")
    failures = serializers.IntegerField(help_text="Number of stagings in a row that failed after their last attempt.")
    next_attempt_at = serializers.DateTimeField(
        allow_null=True, help_text="Time before which staging is not tried again after a failure; null: no wait."
    )
    error = ProblemSerializer(
        allow_null=True, help_text="Error of the last failed attempt; null: none failed, or a new attempt has begun."
    )
    updated_at = serializers.DateTimeField()


class StagingPageSerializer(serializers.Serializer[Any]):
    results = StagingRowSerializer(many=True)
    total = serializers.IntegerField()
    phases = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="Number of placements on active hosts in each phase, regardless of the filters.",
    )


class StagingView(OperatorView):
    http_method_names = ["get", "options"]

    @extend_schema("list_staging", parameters=[StagingQuerySerializer], responses=StagingPageSerializer)
    def get(self, request: Request) -> Response:
        """Versions of all tenants on their way to hosts: how far, how often tried, and what went wrong."""
        page = staging_page(**read_query(StagingQuerySerializer, request))
        return Response(StagingPageSerializer(asdict(page)).data)


class RetryView(OperatorView):
    @extend_schema("retry_staging", request=None, responses={202: None} | CONFLICT)
    def post(self, request: Request, placement_id: UUID) -> Response:
        """Try to stage a placement now, without waiting for the pause after a failure."""
        actions.retry_placement(actor=self.actor, placement_id=placement_id)
        return Response(status=202)
