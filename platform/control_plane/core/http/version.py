"""The public address that reports the version, in the form of vLLM's."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.core.http.access import Access
from control_plane.core.http.api_view import ApiView
from lorikeet_version import build_version


class ServerVersionSerializer(serializers.Serializer[Any]):
    version = serializers.CharField(help_text="The release and the commit, such as 0.1.0+gf66acf9d.")


class ServerVersionView(ApiView):
    """The version of the web process that answers, and nothing about engines, libraries or the system."""

    access = Access.PUBLIC
    authentication_classes = ()
    permission_classes = ()
    http_method_names = ["get", "head"]

    @extend_schema("get_version", responses=ServerVersionSerializer, tags=["version"], auth=[])
    def get(self, request: Request) -> Response:
        """The version of this server. No key is needed."""
        return Response({"version": build_version()})
