"""Beginning an import, and the tenant's token for private repositories."""

from __future__ import annotations

from uuid import uuid4

from django.db import transaction

from control_plane.access.principal import Principal
from control_plane.adapters.imports.sealed import seal
from control_plane.adapters.imports.sources import HubSource, parse_source
from control_plane.adapters.models import HubToken, Upload
from control_plane.adapters.storage_limits import require_room
from control_plane.adapters.uploads import spool
from control_plane.adapters.uploads.actions import require_free_name, require_short_backlog, tell_upload
from control_plane.audit import actions as audit
from control_plane.tenants.models import Tenant
from control_plane.writes import enqueue


def begin_import(*, acting: Principal, name: str, description: str, source: str) -> Upload:
    """An upload whose files a worker fetches. Its address is kept sealed: a bucket's holds a signature.

    Raises SourceRefusedError, NameTakenByBaseError, StoredLimitError or TooManyWaitingError.
    """
    parsed = parse_source(source)
    require_free_name(name)
    require_room(acting.tenant, name, 0)
    upload_id = uuid4()
    with transaction.atomic():
        require_short_backlog(acting.tenant)
        upload = Upload.objects.create(
            id=upload_id,
            tenant=acting.tenant,
            adapter_name=name,
            description=description,
            bytes=0,
            files=[],
            source={
                "name": parsed.shown,
                "revision": parsed.revision if isinstance(parsed, HubSource) else None,
                "sealed": seal(source),
            },
            folder=str(spool.upload_folder(upload_id)),
            created_by=acting.user,
            created_by_key=acting.api_key,
        )
        audit.record(acting.actor, "upload.import", upload, tenant=acting.tenant, label=name, source=parsed.shown)
        tell_upload(upload)
        enqueue("adapters.validate_next")
    return upload


def set_hub_token(*, acting: Principal, token: str) -> HubToken:
    """The tenant's token from now on."""
    with transaction.atomic():
        kept, _ = HubToken.objects.for_tenant(acting.tenant).update_or_create(
            tenant=acting.tenant, defaults={"sealed": seal(token), "created_by": acting.user}
        )
        audit.record(acting.actor, "hub_token.set", kept, tenant=acting.tenant)
    return kept


def remove_hub_token(*, acting: Principal) -> None:
    """Does nothing if there is none."""
    with transaction.atomic():
        kept = HubToken.objects.for_tenant(acting.tenant).select_for_update().first()
        if kept is not None:
            audit.record(acting.actor, "hub_token.remove", kept, tenant=acting.tenant)
            kept.delete()


def has_hub_token(tenant: Tenant) -> bool:
    return HubToken.objects.for_tenant(tenant).exists()
