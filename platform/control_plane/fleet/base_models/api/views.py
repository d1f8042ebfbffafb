"""The base models that the installation serves, for operators."""

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.core.errors import NotFoundError
from control_plane.core.http.serializers import CONFLICT, NOT_FOUND, validated
from control_plane.fleet.base_models.actions import (
    approve_base_model,
    describe_host,
    rename_base_model,
    require_served,
    set_base_model,
    set_sleep,
    withdraw_base_model,
)
from control_plane.fleet.base_models.api.queries import base_models, require_no_adapters_name
from control_plane.fleet.base_models.api.serializers import (
    ApprovedBaseModelSerializer,
    BaseModelChangeSerializer,
    BaseModelSerializer,
    ListedBaseModelSerializer,
    NewBaseModelSerializer,
)
from control_plane.fleet.base_models.models import BaseModel
from control_plane.identity.access.operator import OperatorView


class OperatorBaseModelView(OperatorView):
    http_method_names = ["get", "put", "options"]

    @extend_schema("read_base_model", responses={200: BaseModelSerializer} | NOT_FOUND)
    def get(self, request: Request) -> Response:
        """The base model that was approved first, and who decided that. `GET base-models` lists all."""
        row = BaseModel.objects.filter(withdrawn_at=None).first()
        if row is None:
            raise NotFoundError(
                "It is not decided yet which base model is served.",
                "Start the first host in LORIKEET_ENGINE_HOSTS, or decide with PUT.",
                code="base_model_undecided",
            )
        return Response(BaseModelSerializer(row).data)

    @extend_schema(
        "set_base_model", request=NewBaseModelSerializer, responses={200: BaseModelSerializer} | NOT_FOUND | CONFLICT
    )
    def put(self, request: Request) -> Response:
        """Serve the base model of a host from now on, and no other. Hosts of others go into quarantine."""
        body = validated(NewBaseModelSerializer, request.data)
        row = set_base_model(
            actor=self.actor, description=describe_host(body["host"]), keep_adapters=body["keep_adapters"]
        )
        return Response(BaseModelSerializer(row).data)


class OperatorBaseModelsView(OperatorView):
    http_method_names = ["get", "post", "options"]

    @extend_schema("list_base_models", responses=ListedBaseModelSerializer(many=True))
    def get(self, request: Request) -> Response:
        """Base models that are served, those that hosts have and nobody approved, and those that were withdrawn."""
        return Response(base_models())

    @extend_schema(
        "approve_base_model",
        request=ApprovedBaseModelSerializer,
        responses={200: BaseModelSerializer} | NOT_FOUND | CONFLICT,
    )
    def post(self, request: Request) -> Response:
        """Serve the base model of a host from now on, beside the others."""
        body = validated(ApprovedBaseModelSerializer, request.data)
        if body["name"]:
            require_no_adapters_name(body["name"])
        row = approve_base_model(actor=self.actor, description=describe_host(body["host"]), name=body["name"])
        return Response(BaseModelSerializer(row).data)


class OperatorServedBaseModelView(OperatorView):
    @extend_schema(
        "change_base_model", request=BaseModelChangeSerializer, responses={200: BaseModelSerializer} | CONFLICT
    )
    def patch(self, request: Request, digest: str) -> Response:
        """Rename a served base model, or set after which time without requests it needs no host."""
        body = validated(BaseModelChangeSerializer, request.data)
        row = require_served(digest)
        if "name" in body:
            require_no_adapters_name(body["name"])
            row = rename_base_model(actor=self.actor, digest=digest, name=body["name"])
        if "sleeps_after_s" in body:
            row = set_sleep(actor=self.actor, digest=digest, after_s=body["sleeps_after_s"])
        return Response(BaseModelSerializer(row).data)

    @extend_schema("withdraw_base_model", responses={204: None} | CONFLICT)
    def delete(self, request: Request, digest: str) -> Response:
        """Withdraw a base model: its hosts go into quarantine, and its adapters cannot be called."""
        withdraw_base_model(actor=self.actor, digest=digest)
        return Response(status=204)
