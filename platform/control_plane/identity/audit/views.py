"""The audit log over HTTP: read only, as nothing can change it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.core.http.csv_files import CSV, csv_answer
from control_plane.core.http.serializers import read_query
from control_plane.identity.access.operator import OperatorView
from control_plane.identity.access.views import TenantView
from control_plane.identity.audit.audit_csv import AuditTable
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.audit.queries import Filters, of_everybody, of_tenant, page
from control_plane.identity.audit.serializers import (
    AuditFiltersSerializer,
    AuditMatchSerializer,
    AuditPageSerializer,
    OperatorAuditFiltersSerializer,
    OperatorAuditMatchSerializer,
)
from control_plane.identity.tenants.roles import Capability

operation = partial(extend_schema, tags=["audit"])


class AuditView(TenantView):
    needs: ClassVar = {"GET": Capability.READ_AUDIT}

    @operation("list_audit", parameters=[AuditFiltersSerializer], responses=AuditPageSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """List who changed what in this tenant, newest first."""
        return _page(partial(of_tenant, self.principal.tenant), _filters(AuditFiltersSerializer, request))


class AuditCsvView(TenantView):
    needs: ClassVar = {"GET": Capability.READ_AUDIT}

    @operation("read_audit_csv", parameters=[AuditMatchSerializer], responses=CSV)
    def get(self, request: Request, tenant: str) -> HttpResponseBase:
        """Read the whole log as CSV, newest first."""
        rows = of_tenant(self.principal.tenant, Filters(**_filters(AuditMatchSerializer, request)))
        return csv_answer(AuditTable(rows, self.principal.tenant.slug))


class OperatorAuditView(OperatorView):
    @extend_schema("list_operator_audit", parameters=[OperatorAuditFiltersSerializer], responses=AuditPageSerializer)
    def get(self, request: Request) -> Response:
        """List who changed what in all tenants, and who signed in."""
        return _page(of_everybody, _filters(OperatorAuditFiltersSerializer, request))


class OperatorAuditCsvView(OperatorView):
    @extend_schema("read_operator_audit_csv", parameters=[OperatorAuditMatchSerializer], responses=CSV)
    def get(self, request: Request) -> HttpResponseBase:
        """Read the whole log of all tenants as CSV, newest first."""
        rows = of_everybody(Filters(**_filters(OperatorAuditMatchSerializer, request)))
        return csv_answer(AuditTable(rows, "all-tenants"))


def _filters(kind: type[AuditMatchSerializer], request: Request) -> dict[str, Any]:
    return dict(read_query(kind, request))


def _page(read: Callable[[Filters], QuerySet[AuditEvent]], filters: dict[str, Any]) -> Response:
    before, size = filters.pop("before"), filters.pop("size")
    events, following = page(read(Filters(**filters)), before=before, size=size)
    return Response(AuditPageSerializer({"events": events, "next": following}).data)
