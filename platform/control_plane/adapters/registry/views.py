"""Adapters, versions, uploads and the model list over HTTP."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import ClassVar
from uuid import UUID

from django.core.files.uploadedfile import TemporaryUploadedFile
from drf_spectacular.utils import extend_schema
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.adapters.registry import aliases, archiving, queries, versions
from control_plane.adapters.registry.resolve import find_models
from control_plane.adapters.registry.serializers import (
    AdapterListQuerySerializer,
    AdapterSerializer,
    AdapterSummarySerializer,
    AliasTargetSerializer,
    ArchivedAdapterSerializer,
    ArchivedListQuerySerializer,
    ModelSerializer,
    NewUploadSerializer,
    StorageSerializer,
    UploadListQuerySerializer,
    UploadSerializer,
    VersionSerializer,
)
from control_plane.adapters.uploads import actions as uploads
from control_plane.adapters.uploads import resumable
from control_plane.adapters.uploads.announced_digests import read_announced
from control_plane.adapters.uploads.models import UploadState
from control_plane.billing.limits.queries import tenant_limits
from control_plane.core.errors import LorikeetError
from control_plane.core.http.lists import TOTAL, TOTAL_HEADER, ListQuerySerializer, list_response
from control_plane.core.http.serializers import CONFLICT, ErrorResponseSerializer, read_query, validated
from control_plane.identity.access.views import TenantView
from control_plane.identity.tenants.roles import Capability

operation = partial(extend_schema, tags=["adapters"])

MAX_IN_STORAGE = 50  # adapters in the list of the largest


class AdaptersView(TenantView):
    @operation(
        "list_adapters", parameters=[AdapterListQuerySerializer, TOTAL], responses=AdapterSummarySerializer(many=True)
    )
    def get(self, request: Request, tenant: str) -> Response:
        """List active adapters, by name unless sorted otherwise, all or a part."""
        query = read_query(AdapterListQuerySerializer, request)
        adapters, total = queries.list_adapters(self.principal.tenant, **query)
        return Response(AdapterSummarySerializer(adapters, many=True).data, headers={TOTAL_HEADER: str(total)})


class AdapterView(TenantView):
    needs: ClassVar = {"GET": Capability.VIEW, "DELETE": Capability.WRITE_ADAPTERS}

    @operation("read_adapter", responses=AdapterSerializer)
    def get(self, request: Request, tenant: str, name: str) -> Response:
        """Read an adapter with its versions and aliases."""
        return Response(AdapterSerializer(queries.get_adapter(self.principal.tenant, name)).data)

    @operation("archive_adapter", responses={204: None})
    def delete(self, request: Request, tenant: str, name: str) -> Response:
        """Archive the adapter: it can no longer be called, and its name is free. It can be restored for a while."""
        adapter = queries.get_adapter(self.principal.tenant, name).adapter
        archiving.archive_adapter(acting=self.principal, adapter=adapter)
        return Response(status=204)


class ArchivedAdaptersView(TenantView):
    @operation(
        "list_archived_adapters",
        parameters=[ArchivedListQuerySerializer, TOTAL],
        responses=ArchivedAdapterSerializer(many=True),
    )
    def get(self, request: Request, tenant: str) -> Response:
        """List the archived adapters that can be restored, all or a part; the latest first unless sorted otherwise."""
        query = read_query(ArchivedListQuerySerializer, request)
        archived, total = queries.list_archived(self.principal.tenant, **query)
        return Response(ArchivedAdapterSerializer(archived, many=True).data, headers={TOTAL_HEADER: str(total)})


class ArchivedAdapterView(TenantView):
    needs: ClassVar = {"DELETE": Capability.WRITE_ADAPTERS}

    @operation("delete_archived_adapter", responses={204: None})
    def delete(self, request: Request, tenant: str, adapter_id: UUID) -> Response:
        """Delete an archived adapter permanently; its usage stays in the ledger."""
        archiving.delete_archived_adapter(acting=self.principal, adapter_id=adapter_id)
        return Response(status=204)


class RestoreAdapterView(TenantView):
    needs: ClassVar = {"POST": Capability.WRITE_ADAPTERS}

    @operation("restore_adapter", request=None, responses={202: AdapterSerializer} | CONFLICT)
    def post(self, request: Request, tenant: str, adapter_id: UUID) -> Response:
        """Restore an archived adapter with its versions and aliases. The versions are staged again."""
        adapter = archiving.restore_adapter(acting=self.principal, adapter_id=adapter_id)
        return Response(AdapterSerializer(queries.get_adapter(self.principal.tenant, adapter.name)).data, status=202)


class StorageView(TenantView):
    @operation("read_storage", responses=StorageSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """Read the storage that the tenant's adapters take."""
        scope = self.principal.tenant
        by_adapter = queries.bytes_by_adapter(scope)
        storage = {
            "bytes": queries.stored_bytes(scope),
            "limit_bytes": tenant_limits(scope).storage_bytes,
            "archived_bytes": queries.archived_bytes(scope),
            "adapters": by_adapter[:MAX_IN_STORAGE],
            "adapter_count": by_adapter.count(),
        }
        return Response(StorageSerializer(storage).data)


class VersionView(TenantView):
    needs: ClassVar = {"GET": Capability.VIEW, "DELETE": Capability.WRITE_ADAPTERS}

    @operation("read_version", responses=VersionSerializer)
    def get(self, request: Request, tenant: str, name: str, number: int) -> Response:
        """Read a version with its validation report and placements."""
        return self.show(name, number)

    @operation("delete_version", responses={204: None} | CONFLICT)
    def delete(self, request: Request, tenant: str, name: str, number: int) -> Response:
        """Delete a version permanently. Refused while an alias or a canary needs it; its usage stays in the ledger."""
        version = queries.get_version(self.principal.tenant, name, number)
        archiving.delete_version(acting=self.principal, version=version)
        return Response(status=204)

    def show(self, name: str, number: int, status: int = 200) -> Response:
        version = queries.get_version(self.principal.tenant, name, number)
        return Response(VersionSerializer(version).data, status=status)


class PromoteView(VersionView):
    http_method_names = ["post", "options"]
    needs: ClassVar = {"POST": Capability.WRITE_ADAPTERS}

    @operation("promote_version", request=None, responses={200: VersionSerializer} | CONFLICT)
    def post(self, request: Request, tenant: str, name: str, number: int) -> Response:
        """Make this version the live one, which the bare adapter name means."""
        version = queries.get_version(self.principal.tenant, name, number)
        versions.promote_version(acting=self.principal, version=version)
        return self.show(name, number)


class ConfirmBaseView(VersionView):
    http_method_names = ["post", "options"]
    needs: ClassVar = {"POST": Capability.WRITE_ADAPTERS}

    @operation("confirm_base", request=None, responses=VersionSerializer)
    def post(self, request: Request, tenant: str, name: str, number: int) -> Response:
        """Confirm that the base model which the version names (`named_base`) is the served one."""
        version = queries.get_version(self.principal.tenant, name, number)
        versions.confirm_base(acting=self.principal, version=version)
        return self.show(name, number)


class ConfirmEffectView(VersionView):
    http_method_names = ["post", "options"]
    needs: ClassVar = {"POST": Capability.WRITE_ADAPTERS}

    @operation("confirm_effect", request=None, responses=VersionSerializer)
    def post(self, request: Request, tenant: str, name: str, number: int) -> Response:
        """Confirm that a version may be live although it is flagged (`asks_for_effect`)."""
        version = queries.get_version(self.principal.tenant, name, number)
        versions.confirm_effect(acting=self.principal, version=version)
        return self.show(name, number)


class ArchiveVersionView(VersionView):
    http_method_names = ["post", "options"]
    needs: ClassVar = {"POST": Capability.WRITE_ADAPTERS}

    @operation("archive_version", request=None, responses={200: VersionSerializer} | CONFLICT)
    def post(self, request: Request, tenant: str, name: str, number: int) -> Response:
        """Archive a version. Refused while an alias or a canary needs it. It can be restored for a while."""
        version = queries.get_version(self.principal.tenant, name, number)
        archiving.archive_version(acting=self.principal, version=version)
        return self.show(name, number)


class RestoreVersionView(VersionView):
    http_method_names = ["post", "options"]
    needs: ClassVar = {"POST": Capability.WRITE_ADAPTERS}

    @operation("restore_version", request=None, responses={202: VersionSerializer} | CONFLICT)
    def post(self, request: Request, tenant: str, name: str, number: int) -> Response:
        """Restore an archived version. It is staged on the hosts again."""
        version = queries.get_version(self.principal.tenant, name, number)
        archiving.restore_version(acting=self.principal, version=version)
        return self.show(name, number, status=202)


class AliasView(TenantView):
    needs: ClassVar = {"PUT": Capability.WRITE_ADAPTERS, "DELETE": Capability.WRITE_ADAPTERS}

    @operation("set_alias", request=AliasTargetSerializer, responses={200: AdapterSerializer} | CONFLICT)
    def put(self, request: Request, tenant: str, name: str, alias: str) -> Response:
        """Create the alias, or point it at another version. Running requests keep the version they started with."""
        form = validated(AliasTargetSerializer, request.data)
        version = queries.get_version(self.principal.tenant, name, form["version"])
        aliases.set_alias(acting=self.principal, version=version, name=alias)
        return self.show(name)

    @operation("remove_alias", responses={204: None} | CONFLICT)
    def delete(self, request: Request, tenant: str, name: str, alias: str) -> Response:
        """Remove an alias of the adapter."""
        adapter = queries.get_adapter(self.principal.tenant, name).adapter
        aliases.remove_alias(acting=self.principal, adapter=adapter, name=alias)
        return Response(status=204)

    def show(self, name: str) -> Response:
        return Response(AdapterSerializer(queries.get_adapter(self.principal.tenant, name)).data)


class RollbackView(AliasView):
    http_method_names = ["post", "options"]
    needs: ClassVar = {"POST": Capability.WRITE_ADAPTERS}

    @operation("roll_back_alias", request=None, responses={200: AdapterSerializer} | CONFLICT)
    def post(self, request: Request, tenant: str, name: str, alias: str) -> Response:
        """Point the alias back at its previous version."""
        adapter = queries.get_adapter(self.principal.tenant, name).adapter
        aliases.roll_back(acting=self.principal, adapter=adapter, name=alias)
        return self.show(name)


class UploadsView(TenantView):
    parser_classes = (MultiPartParser,)
    needs: ClassVar = {"GET": Capability.VIEW, "POST": Capability.WRITE_ADAPTERS}

    @operation(
        "list_uploads",
        parameters=[UploadListQuerySerializer, TOTAL],
        responses=UploadSerializer(many=True),
        tags=["uploads"],
    )
    def get(self, request: Request, tenant: str) -> Response:
        """List uploads, newest first; `search` by the adapter's name."""
        query = read_query(UploadListQuerySerializer, request)
        matches = queries.find_uploads(self.principal.tenant, query["search"])
        return list_response(UploadSerializer, matches, query)

    @operation(
        "create_upload",
        request={"multipart/form-data": NewUploadSerializer},
        responses={202: UploadSerializer} | CONFLICT,
        tags=["uploads"],
    )
    def post(self, request: Request, tenant: str) -> Response:
        """Upload an adapter. It is validated in the background; read the upload or listen for `upload.updated`."""
        fields = {**request.FILES.dict(), **request.POST.dict(), "files": request.FILES.getlist("files")}
        form = validated(NewUploadSerializer, fields)
        files: list[TemporaryUploadedFile] = form["files"]
        names = [file.name or "" for file in files]
        _check_names(names)
        upload = uploads.receive_upload(
            acting=self.principal,
            name=form["name"],
            description=form["description"],
            files=files,
            announced=read_announced(form["sha256"], names),
            base_model=form["base_model"],
        )
        return Response(UploadSerializer(queries.get_upload(self.principal.tenant, upload.pk)).data, status=202)


def _check_names(names: list[str]) -> None:
    if not names:
        raise LorikeetError(
            "no_files",
            "The form contains no files.",
            "Send adapter_config.json and adapter_model.safetensors, or one archive, in the field `files`.",
            param="files",
        )
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise LorikeetError(
            "duplicate_file", f'The form contains "{name}" {count} times.', "Send each file once.", param="files"
        )


class UploadView(TenantView):
    needs: ClassVar = {"GET": Capability.VIEW, "DELETE": Capability.WRITE_ADAPTERS}

    @operation("read_upload", responses=UploadSerializer, tags=["uploads"])
    def get(self, request: Request, tenant: str, upload_id: UUID) -> Response:
        """Read an upload, with its validation report once it is decided."""
        return Response(UploadSerializer(queries.get_upload(self.principal.tenant, upload_id)).data)

    @operation("cancel_upload", responses={200: UploadSerializer, 410: ErrorResponseSerializer}, tags=["uploads"])
    def delete(self, request: Request, tenant: str, upload_id: UUID) -> Response:
        """Cancel an upload or an import that is not decided yet, and remove its files."""
        upload = queries.get_upload(self.principal.tenant, upload_id)
        if upload.state == UploadState.ARRIVING:
            resumable.cancel_resumable(acting=self.principal, upload_id=upload_id)
        else:
            uploads.cancel_upload(acting=self.principal, upload=upload)
        return Response(UploadSerializer(queries.get_upload(self.principal.tenant, upload_id)).data)


class ModelsView(TenantView):
    @operation(
        "list_models", parameters=[ListQuerySerializer, TOTAL], responses=ModelSerializer(many=True), tags=["models"]
    )
    def get(self, request: Request, tenant: str) -> Response:
        """List the models: the base models, then every adapter with a ready live version, all or a part."""
        query = read_query(ListQuerySerializer, request)
        models, total = find_models(self.principal.tenant, **query)
        return Response(ModelSerializer(models, many=True).data, headers={TOTAL_HEADER: str(total)})
