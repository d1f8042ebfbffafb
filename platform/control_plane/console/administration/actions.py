"""Operators' actions on tenants. Each has its audit row in the tenant's log and in the operators'."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from control_plane.adapters.imports.actions import forget_credentials
from control_plane.adapters.registry.archiving import archive_as
from control_plane.adapters.registry.models import Adapter
from control_plane.adapters.uploads.actions import UNDECIDED, UploadEndedError, cancel_as
from control_plane.adapters.uploads.models import Upload
from control_plane.billing.reports.models import ExportSchedule
from control_plane.console.webhooks.models import Endpoint
from control_plane.core.errors import LorikeetError, NotFoundError
from control_plane.core.events.recheck import recheck_key, recheck_user
from control_plane.core.writes import announce, enqueue
from control_plane.fleet.placements.models import PinnedPrefix
from control_plane.gateway.batches.models import Batch, StoredFile
from control_plane.gateway.conversations.models import StoredResponse
from control_plane.gateway.transcripts.models import Recording, Transcript
from control_plane.identity.access.actor import SYSTEM, Actor
from control_plane.identity.access.principal import Principal
from control_plane.identity.accounts.identities import unlink
from control_plane.identity.accounts.models import Identity, User
from control_plane.identity.audit import actions as audit
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.members.actions import create_tenant as insert_tenant
from control_plane.identity.members.invitations import invite
from control_plane.identity.origins.models import AllowedOrigin
from control_plane.identity.second_factor.actions import reset
from control_plane.identity.tenants.models import Invitation, Membership, Tenant
from control_plane.identity.tenants.roles import Role

# Time within which an operator's visits to a tenant make one row in the audit log.
SAME_VISIT = timedelta(hours=1)
# Adapters that one run of the task archives.
ARCHIVE_BATCH = 100


class TenantExistsError(LorikeetError):
    def __init__(self, slug: str) -> None:
        super().__init__(
            "tenant_exists",
            f'The short name "{slug}" is or was that of a tenant; short names are never used again.',
            "Choose another short name.",
            param="slug",
            status=409,
        )


class TenantDeletedError(LorikeetError):
    def __init__(self, tenant: Tenant) -> None:
        super().__init__(
            "tenant_deleted",
            f"The tenant {tenant.slug} is deleted.",
            "Only its usage and its audit log can still be read.",
            param="tenant",
            status=409,
        )


class NotConfirmedError(LorikeetError):
    def __init__(self, slug: str) -> None:
        super().__init__(
            "not_confirmed",
            "Deleting a tenant cannot be undone, and the request does not confirm it.",
            f"Send confirm={slug} if you mean it; suspending it can be undone.",
            param="confirm",
        )


def create_tenant(*, operator: User, slug: str, name: str, owner: str) -> tuple[Tenant, Invitation]:
    """Create a tenant without members, and the invitation of its first owner. Raises TenantExistsError (409)."""
    with transaction.atomic():
        if Tenant.objects.filter(slug=slug).exists():
            raise TenantExistsError(slug)
        tenant = insert_tenant(actor=Actor.of(operator), slug=slug, name=name)
        acting = Principal.of_operator(tenant, operator)
        return tenant, invite(acting=acting, email=owner, role=Role.OWNER)


def reset_second_factor(*, operator: User, tenant: Tenant, user_id: UUID) -> None:
    """Remove the second factors of a member, and end their sessions. Raises NotFoundError."""
    user = _member(tenant, user_id)
    with transaction.atomic():
        reset(actor=Actor.of(operator), user=user)
        _audit(Actor.of(operator), "member.reset-second-factor", tenant, member=user.email)


def unlink_identity(*, operator: User, tenant: Tenant, user_id: UUID, identity_id: int) -> None:
    """Remove a member's link to the provider, and end their sessions. Raises NotFoundError."""
    user = _member(tenant, user_id)
    with transaction.atomic():
        identity = Identity.objects.select_for_update(of=("self",)).filter(pk=identity_id, user=user).first()
        if identity is None:
            raise NotFoundError("This person has no such link.", "Read the list again.", param="identity_id")
        unlink(actor=Actor.of(operator), identity=identity)
        _audit(Actor.of(operator), "member.unlink-identity", tenant, member=user.email)


def _member(tenant: Tenant, user_id: UUID) -> User:
    membership = Membership.objects.for_tenant(tenant).select_related("user").filter(user_id=user_id).first()
    if membership is None:
        raise NotFoundError(
            "This person is not a member of the tenant.", "Read the list again.", code="member_not_found", param="id"
        )
    return membership.user


def rename_tenant(*, actor: Actor, tenant: Tenant, name: str) -> Tenant:
    """Change a tenant's display name; its short name in addresses stays. Raises TenantDeletedError (409)."""
    with transaction.atomic():
        tenant = _locked(tenant)
        before, tenant.name = tenant.name, name
        if before == name:
            return tenant
        tenant.save(update_fields=["name"])
        _audit(actor, "tenant.rename", tenant, name=name, before=before)
    return tenant


def suspend_tenant(*, actor: Actor, tenant: Tenant, reason: str) -> Tenant:
    """Suspend a tenant: its keys are refused, its members can only read, and its websockets are closed.

    Running requests are completed. A repeated call changes the reason. Raises TenantDeletedError (409).
    """
    with transaction.atomic():
        tenant = _locked(tenant)
        before = tenant.suspended_for if tenant.suspended_at else None
        if before == reason:
            return tenant
        tenant.suspended_at, tenant.suspended_for = tenant.suspended_at or timezone.now(), reason
        tenant.save(update_fields=["suspended_at", "suspended_for"])
        _audit(actor, "tenant.suspend", tenant, reason=reason, before=before)
        _recheck_everybody(tenant)
    return tenant


def resume_tenant(*, actor: Actor, tenant: Tenant) -> Tenant:
    """End a suspension; keys and roles are as before. Raises TenantDeletedError (409)."""
    with transaction.atomic():
        tenant = _locked(tenant)
        if tenant.suspended_at is not None:
            tenant.suspended_at, tenant.suspended_for = None, ""
            tenant.save(update_fields=["suspended_at", "suspended_for"])
            _audit(actor, "tenant.resume", tenant)
            _recheck_everybody(tenant)
    return tenant


def delete_tenant(*, actor: Actor, tenant: Tenant, confirm: str) -> Tenant:
    """Delete a tenant for good: members, keys and texts at once, its adapters in the background.

    Its ledger, statements and audit log stay, and its short name is never used again.
    Raises NotConfirmedError (400), TenantDeletedError (409).
    """
    if confirm != tenant.slug:
        raise NotConfirmedError(tenant.slug)
    with transaction.atomic():
        tenant = _locked(tenant)
        _recheck_everybody(tenant)
        now = timezone.now()
        tenant.deleted_at, tenant.suspended_at = now, tenant.suspended_at or now
        tenant.save(update_fields=["deleted_at", "suspended_at"])
        keys = ApiKey.objects.for_tenant(tenant).filter(revoked_at=None).update(revoked_at=now)
        open_ = Invitation.objects.for_tenant(tenant).filter(accepted_at=None, revoked_at=None)
        invitations = open_.update(revoked_at=now)
        members, _ = Membership.objects.for_tenant(tenant).delete()
        webhooks = Endpoint.objects.for_tenant(tenant).filter(active=True).update(active=False)
        ExportSchedule.objects.for_tenant(tenant).delete()
        Recording.objects.for_tenant(tenant).update(enabled=False)
        transcripts, _ = Transcript.objects.for_tenant(tenant).delete()
        Batch.objects.for_tenant(tenant).delete()
        StoredFile.objects.for_tenant(tenant).delete()
        StoredResponse.objects.for_tenant(tenant).delete()
        AllowedOrigin.objects.for_tenant(tenant).delete()
        PinnedPrefix.objects.for_tenant(tenant).delete()
        forget_credentials(tenant)
        _audit(
            actor,
            "tenant.delete",
            tenant,
            keys=keys,
            members=members,
            invitations=invitations,
            webhooks=webhooks,
            transcripts=transcripts,
        )
        enqueue("administration.clear_deleted")
    return tenant


def archive_of_deleted() -> int:
    """Archive adapters of deleted tenants, also those uploaded after the deletion. Returns their number."""
    left = Adapter.objects.filter(tenant__deleted_at__isnull=False, archived_at=None).select_related("tenant")
    adapters = list(left.order_by("pk")[:ARCHIVE_BATCH])
    for adapter in adapters:
        archive_as(SYSTEM, adapter)
    return len(adapters)


def cancel_uploads_of_deleted() -> None:
    """Cancel undecided uploads of deleted tenants, so that none of their imports is fetched for days."""
    for upload in Upload.objects.filter(UNDECIDED, tenant__deleted_at__isnull=False):
        with suppress(UploadEndedError):
            cancel_as(SYSTEM, upload)


def record_visit(*, operator: User, tenant: Tenant) -> None:
    """Record for the tenant's members that an operator opened the tenant, at most once an hour."""
    actor = Actor.of(operator)
    since = timezone.now() - SAME_VISIT
    with transaction.atomic():
        visits = AuditEvent.objects.filter(tenant=tenant, action="tenant.open", actor_id=actor.id)
        if not visits.filter(created_at__gte=since).exists():
            _audit(actor, "tenant.open", tenant)


def require_open(tenant: Tenant) -> Tenant:
    """Return the tenant unless it is deleted. Raises TenantDeletedError (409)."""
    if tenant.deleted_at is not None:
        raise TenantDeletedError(tenant)
    return tenant


def _locked(tenant: Tenant) -> Tenant:
    # Without locking keys: a worker that has locked a batch, and is to write to the ledger, need not wait.
    return require_open(Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk))


def _recheck_everybody(tenant: Tenant) -> None:
    """Have the sockets of all members and keys checked again after the commit."""
    for user_id in Membership.objects.for_tenant(tenant).values_list("user_id", flat=True):
        recheck_user(user_id)
    for key_id in ApiKey.objects.for_tenant(tenant).filter(revoked_at=None).values_list("pk", flat=True):
        recheck_key(key_id)


def _audit(actor: Actor, action: str, tenant: Tenant, **detail: object) -> None:
    audit.record(actor, action, tenant, tenant=tenant, label=tenant.slug, **detail)
    if action != "tenant.open":
        announce(tenant.pk, "tenant.updated", dict)
