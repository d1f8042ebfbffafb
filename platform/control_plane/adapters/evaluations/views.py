"""Evaluation sets, evaluations and promotion rules over HTTP."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.adapters.evaluations import actions
from control_plane.adapters.evaluations.models import EvaluationSet
from control_plane.adapters.evaluations.serializers import (
    EvaluationSerializer,
    EvaluationSetSerializer,
    NewEvaluationSerializer,
    NewEvaluationSetSerializer,
    NewPromotionRuleSerializer,
)
from control_plane.adapters.registry import queries
from control_plane.adapters.registry.serializers import AdapterSerializer
from control_plane.core.http.lists import TOTAL, ListQuerySerializer, list_response
from control_plane.core.http.serializers import CONFLICT, read_query, validated
from control_plane.identity.access.views import TenantView
from control_plane.identity.tenants.roles import Capability

operation = partial(extend_schema, tags=["evaluations"])


class SetsView(TenantView):
    parser_classes = (MultiPartParser,)
    needs: ClassVar = {"GET": Capability.VIEW, "POST": Capability.WRITE_ADAPTERS}

    @operation("list_evaluation_sets", responses=EvaluationSetSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """List the tenant's evaluation sets, fifty at most."""
        return Response(
            EvaluationSetSerializer(EvaluationSet.objects.for_tenant(self.principal.tenant), many=True).data
        )

    @operation(
        "create_evaluation_set",
        request={"multipart/form-data": NewEvaluationSetSerializer},
        responses={201: EvaluationSetSerializer} | CONFLICT,
    )
    def post(self, request: Request, tenant: str) -> Response:
        """Create a set of prompts with expected answers. It never changes, so that its scores can be compared."""
        form = validated(NewEvaluationSetSerializer, {**request.POST.dict(), **request.FILES.dict()})
        file = form.pop("file")
        made = actions.create_set(acting=self.principal, content=file.read(), **form)
        return Response(EvaluationSetSerializer(made).data, status=201)


class SetView(TenantView):
    needs: ClassVar = {"GET": Capability.VIEW, "DELETE": Capability.WRITE_ADAPTERS}

    @operation("read_evaluation_set", responses=EvaluationSetSerializer)
    def get(self, request: Request, tenant: str, set_name: str) -> Response:
        """Read a set, without its items."""
        return Response(EvaluationSetSerializer(actions.get_set(self.principal.tenant, set_name)).data)

    @operation("delete_evaluation_set", responses={204: None} | CONFLICT)
    def delete(self, request: Request, tenant: str, set_name: str) -> Response:
        """Delete a set; scores stay. Refused while an evaluation runs with it or a promotion rule names it."""
        actions.delete_set(acting=self.principal, name=set_name)
        return Response(status=204)


class EvaluationsView(TenantView):
    needs: ClassVar = {"GET": Capability.VIEW, "POST": Capability.WRITE_ADAPTERS}

    @operation("list_evaluations", parameters=[ListQuerySerializer, TOTAL], responses=EvaluationSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """List evaluations, newest first; `search` by the adapter's name."""
        query = read_query(ListQuerySerializer, request)
        matches = actions.find_evaluations(self.principal.tenant, query["search"])
        return list_response(EvaluationSerializer, matches, query)

    @operation("start_evaluation", request=NewEvaluationSerializer, responses={201: EvaluationSerializer} | CONFLICT)
    def post(self, request: Request, tenant: str) -> Response:
        """Score a version, the live one and the base model once it is ready. The requests yield to all others."""
        form = validated(NewEvaluationSerializer, request.data)
        scope = self.principal.tenant
        if form["upload"] is not None:
            of: Any = queries.get_upload(scope, form["upload"])
        else:
            of = queries.get_version(scope, form["adapter"], form["version"])
        made = actions.start_evaluation(acting=self.principal, set_name=form["set"], key_id=form["key"], of=of)
        return Response(EvaluationSerializer(actions.get_evaluation(scope, made.pk)).data, status=201)


class EvaluationView(TenantView):
    needs: ClassVar = {"GET": Capability.VIEW, "DELETE": Capability.WRITE_ADAPTERS}

    @operation("read_evaluation", responses=EvaluationSerializer)
    def get(self, request: Request, tenant: str, evaluation_id: UUID) -> Response:
        """Read an evaluation's progress or result."""
        return Response(EvaluationSerializer(actions.get_evaluation(self.principal.tenant, evaluation_id)).data)

    @operation("cancel_evaluation", responses={204: None} | CONFLICT)
    def delete(self, request: Request, tenant: str, evaluation_id: UUID) -> Response:
        """Cancel an evaluation and its batch; it stays in the list."""
        actions.cancel_evaluation(acting=self.principal, evaluation_id=evaluation_id)
        return Response(status=204)


class PromotionRuleView(TenantView):
    needs: ClassVar = {"PUT": Capability.WRITE_ADAPTERS, "DELETE": Capability.WRITE_ADAPTERS}

    @operation("set_promotion_rule", request=NewPromotionRuleSerializer, responses={200: AdapterSerializer} | CONFLICT)
    def put(self, request: Request, tenant: str, name: str) -> Response:
        """Set the score that a version needs to become live or a canary. New versions are evaluated automatically."""
        form = validated(NewPromotionRuleSerializer, request.data)
        scope = self.principal.tenant
        actions.set_rule(
            acting=self.principal,
            adapter=queries.get_adapter(scope, name).adapter,
            set_name=form["set"],
            key_id=form["key"],
            minimum=form["minimum"],
            not_worse_than_live=form["not_worse_than_live"],
        )
        return Response(AdapterSerializer(queries.get_adapter(scope, name)).data)

    @operation("remove_promotion_rule", responses={204: None})
    def delete(self, request: Request, tenant: str, name: str) -> Response:
        """Remove the rule: any ready version may become live."""
        adapter = queries.get_adapter(self.principal.tenant, name).adapter
        actions.remove_rule(acting=self.principal, adapter=adapter)
        return Response(status=204)
