"""Starting imports, and the credentials with which a tenant's private repositories and buckets are read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from uuid import uuid4

from django.db import transaction
from django.db.models import QuerySet

from control_plane.adapters.imports.bucket import endpoint_of
from control_plane.adapters.imports.models import BucketCredentials, HubFollow, HubModelPolicy, HubToken
from control_plane.adapters.imports.problems import no_credentials
from control_plane.adapters.imports.sealed import seal
from control_plane.adapters.imports.sources import HubSource, S3Source, SourceRefusedError, parse_source
from control_plane.adapters.registry.base_of_adapter import wanted_base
from control_plane.adapters.registry.storage_limits import require_room
from control_plane.adapters.uploads import spool
from control_plane.adapters.uploads.actions import require_free_name, require_short_backlog, tell_upload
from control_plane.adapters.uploads.models import Upload
from control_plane.core.config import current
from control_plane.core.errors import LorikeetError, NotFoundError
from control_plane.core.http.egress import UrlRefusedError, check_url
from control_plane.core.writes import enqueue
from control_plane.identity.access.actor import Actor
from control_plane.identity.access.principal import Principal
from control_plane.identity.accounts.models import User
from control_plane.identity.audit import actions as audit
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.models import Tenant

# Maximum number of buckets with credentials of one tenant.
MAX_BUCKETS = 50


class EndpointRefusedError(LorikeetError):
    def __init__(self, message: str) -> None:
        super().__init__(
            "endpoint_refused",
            message,
            "Write it like https://s3.example.org, without the bucket, or leave it empty for Amazon S3.",
            param="endpoint",
        )


class TooManyBucketsError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "too_many_buckets",
            f"This tenant has credentials for {MAX_BUCKETS} buckets.",
            "Remove the credentials of a bucket that is no longer needed.",
            status=409,
        )


def begin_import(*, acting: Principal, name: str, description: str, source: str, base_model: str = "") -> Upload:
    """Create an upload whose files a worker fetches. Raises as `import_for` does."""
    return import_for(
        acting.tenant,
        acting.actor,
        name=name,
        description=description,
        source=source,
        base_model=base_model,
        created_by=acting.user,
        created_by_key=acting.api_key,
    )


def import_for(
    tenant: Tenant,
    actor: Actor,
    *,
    name: str,
    description: str,
    source: str,
    base_model: str = "",
    created_by: User | None,
    created_by_key: ApiKey | None = None,
) -> Upload:
    """Create an import without an acting member. The address is stored encrypted: a bucket's contains a signature.

    Raises SourceRefusedError, NameTakenByBaseError, UnknownBaseError, OtherBaseOfAdapterError, StoredLimitError or
    TooManyWaitingError.
    """
    parsed = parse_source(source)
    if isinstance(parsed, S3Source):
        require_credentials(tenant, parsed.bucket)
    require_free_name(name)
    base_digest = wanted_base(tenant, name, base_model)
    require_room(tenant, name, 0)
    upload_id = uuid4()
    with transaction.atomic():
        require_short_backlog(tenant)
        upload = Upload.objects.create(
            id=upload_id,
            tenant=tenant,
            adapter_name=name,
            description=description,
            base_digest=base_digest,
            bytes=0,
            files=[],
            source={
                "name": parsed.shown,
                "revision": parsed.revision if isinstance(parsed, HubSource) else None,
                "sealed": seal(source),
            },
            folder=str(spool.upload_folder(upload_id)),
            created_by=created_by,
            created_by_key=created_by_key,
        )
        audit.record(actor, "upload.import", upload, tenant=tenant, label=name, source=parsed.shown)
        tell_upload(upload)
        enqueue("uploads.validate_next")
    return upload


def set_hub_token(*, acting: Principal, token: str) -> HubToken:
    """Set the tenant's token."""
    with transaction.atomic():
        kept, _ = HubToken.objects.for_tenant(acting.tenant).update_or_create(
            tenant=acting.tenant, defaults={"sealed": seal(token), "created_by": acting.user}
        )
        audit.record(acting.actor, "hub_token.set", kept, tenant=acting.tenant)
    return kept


def remove_hub_token(*, acting: Principal) -> None:
    """Remove the tenant's token, if there is one."""
    with transaction.atomic():
        kept = HubToken.objects.for_tenant(acting.tenant).select_for_update().first()
        if kept is not None:
            audit.record(acting.actor, "hub_token.remove", kept, tenant=acting.tenant)
            kept.delete()


def has_hub_token(tenant: Tenant) -> bool:
    return HubToken.objects.for_tenant(tenant).exists()


def buckets_of(tenant: Tenant) -> QuerySet[BucketCredentials]:
    return BucketCredentials.objects.for_tenant(tenant)


def require_credentials(tenant: Tenant, bucket: str) -> None:
    """Raise SourceRefusedError (400) if there are no credentials for the bucket."""
    if not buckets_of(tenant).filter(bucket=bucket).exists():
        _, message, fix = no_credentials(bucket)
        raise SourceRefusedError(message, fix)


def set_bucket_credentials(
    *,
    acting: Principal,
    bucket: str,
    endpoint: str,
    region: str,
    access_key_id: str,
    secret_access_key: str,
    session_token: str = "",
) -> BucketCredentials:
    """Set the credentials for reading a bucket. Raises EndpointRefusedError or TooManyBucketsError."""
    _check_endpoint(endpoint_of(endpoint, region))
    keys = {"access_key_id": access_key_id, "secret_access_key": secret_access_key, "session_token": session_token}
    secret = json.dumps(keys)
    with transaction.atomic():
        Tenant.objects.select_for_update(no_key=True).get(pk=acting.tenant.pk)  # makes the count exact
        known = buckets_of(acting.tenant)
        if known.exclude(bucket=bucket).count() >= MAX_BUCKETS:
            raise TooManyBucketsError
        kept, _ = known.update_or_create(
            tenant=acting.tenant,
            bucket=bucket,
            defaults={"endpoint": endpoint, "region": region, "sealed": seal(secret), "created_by": acting.user},
        )
        audit.record(
            acting.actor,
            "bucket_credentials.set",
            kept,
            tenant=acting.tenant,
            label=bucket,
            endpoint=endpoint,
            region=region,
        )
    return kept


def remove_bucket_credentials(*, acting: Principal, bucket: str) -> None:
    """Remove a bucket's credentials. Raises NotFoundError (404)."""
    with transaction.atomic():
        kept = buckets_of(acting.tenant).filter(bucket=bucket).select_for_update().first()
        if kept is None:
            raise NotFoundError("There are no credentials for that bucket.", "GET bucket-credentials lists them.")
        audit.record(acting.actor, "bucket_credentials.remove", kept, tenant=acting.tenant, label=bucket)
        kept.delete()


def _check_endpoint(endpoint: str) -> None:
    try:
        url = check_url(endpoint, allow_private=current().import_allow_private)
    except UrlRefusedError as error:
        raise EndpointRefusedError(error.message) from None
    if url.path.strip("/") or url.query:
        raise EndpointRefusedError("The endpoint has a path or a query.")


def forget_credentials(tenant: Tenant) -> None:
    """Delete a tenant's credentials, inside the transaction that deletes the tenant and writes the audit row."""
    HubToken.objects.for_tenant(tenant).delete()
    BucketCredentials.objects.for_tenant(tenant).delete()
    HubModelPolicy.objects.for_tenant(tenant).delete()
    HubFollow.objects.for_tenant(tenant).delete()


def set_hub_models(*, acting: Principal, enabled: bool, organizations: Sequence[str]) -> HubModelPolicy:
    """Set if requests may name repositories of the Hub, and of which organisations; an empty list means all."""
    wanted = sorted({organization.lower() for organization in organizations})
    values = {"enabled": enabled, "organizations": wanted}
    with transaction.atomic():
        Tenant.objects.select_for_update(no_key=True).get(pk=acting.tenant.pk)  # one change after another
        policies = HubModelPolicy.objects.for_tenant(acting.tenant)
        before = policies.values(*values).first()
        if before == values:
            return policies.get()
        policy, _ = policies.update_or_create(tenant=acting.tenant, defaults=values)
        audit.record(
            acting.actor,
            "hub_models.update",
            policy,
            tenant=acting.tenant,
            label=acting.tenant.slug,
            **values,
            before=before,
        )
    return policy
