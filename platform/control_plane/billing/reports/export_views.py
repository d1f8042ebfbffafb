"""Views of exports and export schedules."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import ClassVar
from uuid import UUID

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.billing.reports import exports
from control_plane.billing.reports.models import Cadence, Export, ExportPart, ExportSchedule, ExportState, Grain
from control_plane.billing.reports.requests import NewExportScheduleSerializer, NewExportSerializer, read_span
from control_plane.billing.reports.serializers import ExportScheduleSerializer, ExportSerializer
from control_plane.core.db import run_db
from control_plane.core.errors import LorikeetError, NotFoundError
from control_plane.core.http.serializers import CONFLICT, require_known_fields, validated
from control_plane.identity.access.principal import Principal
from control_plane.identity.access.views import TenantView
from control_plane.identity.tenants.roles import Capability

operation = partial(extend_schema, tags=["usage"])

RECENT = 50


def find(acting: Principal, export_id: UUID) -> Export:
    export = Export.objects.for_tenant(acting.tenant).select_related("tenant").filter(pk=export_id).first()
    if export is None:
        raise NotFoundError("There is no such export.", "GET exports lists them.", code="export_not_found")
    return export


class ExportsView(TenantView):
    needs: ClassVar = {"GET": Capability.VIEW, "POST": Capability.WRITE_EXPORTS}

    @operation("list_exports", responses=ExportSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """List the latest fifty exports, newest first."""
        rows = Export.objects.for_tenant(self.principal.tenant).select_related("tenant")[:RECENT]
        return Response(ExportSerializer(rows, many=True).data)

    @operation("request_export", request=NewExportSerializer, responses={202: ExportSerializer} | CONFLICT)
    def post(self, request: Request, tenant: str) -> Response:
        """Have usage written to a file: `from` and `to`, or the last `days`."""
        require_known_fields(NewExportSerializer(), request.data)
        body = read_span(request.data)
        export = exports.request_export(acting=self.principal, span=body.span, grain=body.chosen_grain)
        return Response(ExportSerializer(export).data, status=202)


class ExportView(TenantView):
    @operation("read_export", responses=ExportSerializer)
    def get(self, request: Request, tenant: str, export_id: UUID) -> Response:
        """Read the state of an export."""
        return Response(ExportSerializer(find(self.principal, export_id)).data)


class ExportFileView(TenantView):
    @operation(
        "download_export", responses={(200, "application/gzip"): OpenApiResponse(OpenApiTypes.BINARY)} | CONFLICT
    )
    def get(self, request: Request, tenant: str, export_id: UUID) -> HttpResponseBase:
        """Download the file of an export: CSV, compressed with gzip."""
        export = find(self.principal, export_id)
        if export.state != ExportState.READY:
            raise LorikeetError(
                "export_not_ready", f"The export is {export.state}.", "Download it once it is ready.", status=409
            )
        return StreamingHttpResponse(
            _parts(export.pk),
            content_type="application/gzip",
            headers={
                "Content-Disposition": f'attachment; filename="{export.file_name}"',
                "Content-Length": str(export.bytes),
                "Cache-Control": "private, no-store",
            },
        )


async def _parts(export_id: UUID) -> AsyncIterator[bytes]:
    """Yield the parts of a file, one in memory at a time, each by a query."""
    number = 0
    while (part := await run_db(_part, export_id, number)) is not None:
        yield part
        number += 1


def _part(export_id: UUID, number: int) -> bytes | None:
    data = ExportPart.objects.filter(export_id=export_id, number=number).values_list("data", flat=True).first()
    return None if data is None else bytes(data)


class SchedulesView(TenantView):
    needs: ClassVar = {"GET": Capability.VIEW, "POST": Capability.WRITE_EXPORTS}

    @operation("list_export_schedules", responses=ExportScheduleSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """List the schedules of exports."""
        rows = ExportSchedule.objects.for_tenant(self.principal.tenant).select_related("created_by")
        return Response(ExportScheduleSerializer(rows, many=True).data)

    @operation("add_export_schedule", request=NewExportScheduleSerializer, responses={201: ExportScheduleSerializer})
    def post(self, request: Request, tenant: str) -> Response:
        """Have each week or month exported once it is over."""
        body = validated(NewExportScheduleSerializer, request.data)
        schedule = exports.add_schedule(
            acting=self.principal, cadence=Cadence(body["cadence"]), grain=Grain(body["grain"])
        )
        return Response(ExportScheduleSerializer(schedule).data, status=201)


class ScheduleView(TenantView):
    needs: ClassVar = {"DELETE": Capability.WRITE_EXPORTS}

    @operation("delete_export_schedule", responses={204: None})
    def delete(self, request: Request, tenant: str, schedule_id: UUID) -> Response:
        """Delete an export schedule; its exports stay."""
        schedules = ExportSchedule.objects.for_tenant(self.principal.tenant)
        schedule = schedules.filter(pk=schedule_id).first()
        if schedule is None:
            raise NotFoundError(
                "There is no such schedule.", "GET export-schedules lists them.", code="schedule_not_found"
            )
        exports.delete_schedule(acting=self.principal, schedule=schedule)
        return Response(status=204)
