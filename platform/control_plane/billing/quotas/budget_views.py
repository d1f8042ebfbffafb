"""Views of budgets: read by members, set by admins for the tenant and its keys, granted by operators."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.billing.quotas.budget_reports import budget_report, key_budgets
from control_plane.billing.quotas.budget_serializers import (
    BudgetReportSerializer,
    BudgetsSerializer,
    BudgetStatesSerializer,
)
from control_plane.billing.quotas.budgets import (
    BudgetTerms,
    Terms,
    set_granted_budgets,
    set_key_budgets,
    set_tenant_budgets,
)
from control_plane.billing.quotas.models import AtLimit, BudgetSpan
from control_plane.core.http.serializers import CONFLICT, NOT_FOUND, ErrorResponseSerializer, validated
from control_plane.identity.access.operator import OperatorView, get_tenant
from control_plane.identity.access.views import TenantView
from control_plane.identity.keys.queries import get_key
from control_plane.identity.tenants.models import Tenant
from control_plane.identity.tenants.roles import Capability

operation = partial(extend_schema, tags=["limits"])

_SET = {200: BudgetReportSerializer, 400: ErrorResponseSerializer} | NOT_FOUND | CONFLICT


class BudgetsView(TenantView):
    needs: ClassVar = {"GET": Capability.VIEW, "PUT": Capability.WRITE_BUDGETS}

    @operation("read_budgets", responses=BudgetReportSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """Read what the tenant and its keys may spend in a day and month, and what they have spent."""
        return _report(self.principal.tenant)

    @operation("set_budgets", request=BudgetsSerializer, responses=_SET)
    def put(self, request: Request, tenant: str) -> Response:
        """Set the tenant's own budgets, which the operator's bound; one that is left out is lifted."""
        set_tenant_budgets(acting=self.principal, terms=_terms(request))
        return _report(self.principal.tenant)


class KeyBudgetsView(TenantView):
    needs: ClassVar = {"GET": Capability.VIEW, "PUT": Capability.WRITE_BUDGETS}

    @operation("read_key_budgets", responses=BudgetStatesSerializer)
    def get(self, request: Request, tenant: str, key_id: UUID) -> Response:
        """Read what a key may spend in a day and month, and what it has spent."""
        key = get_key(self.principal.tenant, key_id)
        return Response(BudgetStatesSerializer(key_budgets(key)).data)

    @operation("set_key_budgets", request=BudgetsSerializer, responses=_SET)
    def put(self, request: Request, tenant: str, key_id: UUID) -> Response:
        """Set the budgets of a key; one that is left out is lifted."""
        key = get_key(self.principal.tenant, key_id)
        set_key_budgets(acting=self.principal, key=key, terms=_terms(request))
        return _report(self.principal.tenant)


class OperatorBudgetsView(OperatorView):
    @extend_schema("read_granted_budgets", responses=BudgetReportSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """Read what a tenant may spend and has spent."""
        return _report(get_tenant(tenant))

    @extend_schema("grant_budgets", request=BudgetsSerializer, responses=_SET)
    def put(self, request: Request, tenant: str) -> Response:
        """Set what a tenant may spend; a budget that is left out is lifted."""
        row = get_tenant(tenant)
        set_granted_budgets(actor=self.actor, tenant=row, terms=_terms(request))
        return _report(row)


def _report(tenant: Tenant) -> Response:
    return Response(BudgetReportSerializer(budget_report(tenant)).data)


def _terms(request: Request) -> Terms:
    body = validated(BudgetsSerializer, request.data)
    return {span: _budget(body[span.value]) for span in BudgetSpan}


def _budget(terms: Mapping[str, Any] | None) -> BudgetTerms | None:
    if terms is None:
        return None
    return BudgetTerms(terms["amount_micros"], AtLimit(terms["at_limit"]), tuple(terms["alerts"]))
