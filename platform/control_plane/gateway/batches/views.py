"""Batches and their files over HTTP, for the console and the command line. OpenAI's own paths are under /v1."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import content_disposition_header
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.core.http.lists import TOTAL, ListQuerySerializer, list_response
from control_plane.core.http.serializers import CONFLICT, read_query, validated
from control_plane.gateway.batches import actions, files
from control_plane.gateway.batches.models import ENDPOINTS, Batch, StoredFile
from control_plane.gateway.batches.serializers import (
    BatchSerializer,
    LineErrorSerializer,
    NewBatchSerializer,
    StoredFileSerializer,
)
from control_plane.identity.access.views import TenantView
from control_plane.identity.tenants.roles import Capability

operation = partial(extend_schema, tags=["batches"])

USED = Capability.INFER
_FILES = ("input_file", "output_file", "error_file")


class BatchesView(TenantView):
    parser_classes = (MultiPartParser,)
    needs: ClassVar = {"GET": Capability.VIEW, "POST": USED}

    @operation("list_tenant_batches", parameters=[ListQuerySerializer, TOTAL], responses=BatchSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """List batches, newest first; `search` matches the input file's name."""
        query = read_query(ListQuerySerializer, request)
        batches = Batch.objects.for_tenant(self.principal.tenant).select_related("api_key", *_FILES)
        matches = batches.filter(input_file__name__icontains=query["search"]) if query["search"] else batches
        return list_response(BatchSerializer, matches, query)

    @operation(
        "create_tenant_batch",
        request={"multipart/form-data": NewBatchSerializer},
        responses={201: BatchSerializer} | CONFLICT,
    )
    def post(self, request: Request, tenant: str) -> Response:
        """Upload a file of requests and create a batch, which runs within a day, whenever no other request waits."""
        form = validated(NewBatchSerializer, {**request.POST.dict(), **request.FILES.dict()})
        sent = form["file"]
        batch = actions.upload_batch(
            acting=self.principal,
            key_id=form["key"],
            endpoint=ENDPOINTS[form["endpoint"]],
            name=sent.name,
            content=sent.chunks(),
            size=sent.size,
        )
        return Response(BatchSerializer(batch).data, status=201)


class BatchView(TenantView):
    @operation("read_tenant_batch", responses=BatchSerializer)
    def get(self, request: Request, tenant: str, batch_id: str) -> Response:
        """Return a batch with its progress."""
        return Response(BatchSerializer(actions.get_batch(self.principal.tenant, batch_id)).data)


class BatchErrorsView(TenantView):
    @operation("list_batch_errors", responses=LineErrorSerializer(many=True))
    def get(self, request: Request, tenant: str, batch_id: str) -> Response:
        """List why a batch failed: the lines of its file that are not valid requests, at most a hundred."""
        return Response(LineErrorSerializer(actions.get_batch(self.principal.tenant, batch_id).errors, many=True).data)


class CancelView(TenantView):
    needs: ClassVar = {"POST": USED}

    @operation("cancel_tenant_batch", request=None, responses={200: BatchSerializer} | CONFLICT)
    def post(self, request: Request, tenant: str, batch_id: str) -> Response:
        """Cancel a batch. Results that exist are kept, and are in the output file; the other requests never run."""
        return Response(BatchSerializer(actions.cancel_batch(acting=self.principal, name=batch_id)).data)


class FilesView(TenantView):
    @operation("list_tenant_files", parameters=[ListQuerySerializer, TOTAL], responses=StoredFileSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """List files, newest first: uploads, and files that batches wrote."""
        query = read_query(ListQuerySerializer, request)
        matches = StoredFile.objects.for_tenant(self.principal.tenant).filter(name__icontains=query["search"])
        return list_response(StoredFileSerializer, matches, query)


class FileView(TenantView):
    needs: ClassVar = {"DELETE": USED}

    @operation("delete_tenant_file", responses={204: None} | CONFLICT)
    def delete(self, request: Request, tenant: str, file_id: str) -> Response:
        """Delete a file before it expires."""
        files.delete_file(acting=self.principal, name=file_id)
        return Response(status=204)


class FileContentView(TenantView):
    needs: ClassVar = {"GET": USED}

    @operation("download_file", responses={(200, "application/octet-stream"): OpenApiResponse(OpenApiTypes.BINARY)})
    def get(self, request: Request, tenant: str, file_id: str) -> HttpResponseBase:
        """Download a file. It may hold prompts and answers, so the caller needs the permission to infer."""
        file = files.get_file(self.principal.tenant, file_id)
        return StreamingHttpResponse(
            files.parts_of(file),
            content_type="application/octet-stream",
            headers={
                "Content-Disposition": content_disposition_header(True, file.name) or "attachment",
                "Content-Length": str(file.bytes),
                "Cache-Control": "private, no-store",
            },
        )
