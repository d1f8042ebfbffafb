"""Archiving versions and adapters, restoring them within the retention period, and deleting them.

Archived content cannot be called, is on no host and counts against no limit. A deleted row stays, because the ledger
refers to it; its files are removed as soon as nothing else has the same content.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from control_plane.adapters.registry.locks import lock_version
from control_plane.adapters.registry.models import OUT_OF_USE, Adapter, AdapterVersion, Alias, VersionState
from control_plane.adapters.registry.queries import ArchivedNotFoundError
from control_plane.adapters.registry.signals import version_in_use, version_out_of_use
from control_plane.adapters.registry.storage_limits import lock_tenant, require_room_for_contents
from control_plane.adapters.registry.versions import label_of, tell_adapter, unarchive_version
from control_plane.core.config import current
from control_plane.core.errors import LorikeetError
from control_plane.core.jobs import clocks
from control_plane.identity.access.actor import SYSTEM, Actor
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit import actions as audit


class VersionInUseError(LorikeetError):
    def __init__(self, version: AdapterVersion, users: list[str]) -> None:
        super().__init__(
            "version_in_use",
            f"{label_of(version)} is in use: {'; '.join(users)}.",
            "Point each alias at another version and end its canary first, or archive the whole adapter.",
            param="number",
            status=409,
        )


class NotArchivedError(LorikeetError):
    def __init__(self, version: AdapterVersion) -> None:
        super().__init__(
            "version_not_archived",
            f"{label_of(version)} is {version.state}, so there is nothing to restore.",
            "Restage it if a host has lost it.",
            param="number",
            status=409,
        )


class NameInUseError(LorikeetError):
    def __init__(self, name: str) -> None:
        super().__init__(
            "adapter_name_taken",
            f'Another adapter has the name "{name}" now.',
            "Archive that one first, or upload the content as a version of it.",
            param="name",
            status=409,
        )


# -- versions ----------------------------------------------------------------------------------------------------------


def archive_version(*, acting: Principal, version: AdapterVersion) -> AdapterVersion:
    """Archive a version, to be restored or deleted later. Raises VersionInUseError (409) while an alias needs it."""
    with transaction.atomic():
        version = lock_version(version)
        if version.state != VersionState.ARCHIVED:
            _require_unused(version)
            _archive(version, clocks.database_time())
            audit.record(acting.actor, "version.archive", version, tenant=version.tenant, label=label_of(version))
            tell_adapter(version.adapter)
    return version


def restore_version(*, acting: Principal, version: AdapterVersion) -> AdapterVersion:
    """Bring an archived version back to its hosts. Raises NotArchivedError (409), StoredLimitError (403)."""
    with transaction.atomic():
        lock_tenant(acting.tenant)  # first, as an upload that becomes a version does
        # Lock the adapter: archived meanwhile, it would count this version as archived before it.
        _lock_adapter(Adapter.objects.for_tenant(acting.tenant).filter(pk=version.adapter_id))
        version = lock_version(version)
        if version.state != VersionState.ARCHIVED or version.adapter.archived_at is not None:
            raise NotArchivedError(version)
        require_room_for_contents(version.tenant, version.adapter.name, {version.digest: version.bytes})
        _restore(version, acting.actor)
        tell_adapter(version.adapter)
    return version


def delete_version(*, acting: Principal, version: AdapterVersion) -> None:
    """Delete a version permanently. Raises VersionInUseError (409) while an alias needs it."""
    with transaction.atomic():
        version = lock_version(version)
        _require_unused(version)
        _delete(version, acting.actor)
        tell_adapter(version.adapter)


def _require_unused(version: AdapterVersion) -> None:
    """Raise VersionInUseError if an alias needs the version. It is locked, as it is for every change of an alias."""
    aliases = Alias.objects.for_tenant(version.tenant).filter(Q(version=version) | Q(canary=version))
    users = [
        f"{version.adapter.name}@{alias.name} points at it"
        if alias.version_id == version.pk
        else f"it is the canary of {version.adapter.name}@{alias.name}"
        for alias in aliases
    ]
    if users:
        raise VersionInUseError(version, users)


def _archive(version: AdapterVersion, now: datetime) -> None:
    version.state, version.archived_at = VersionState.ARCHIVED, now
    version.save(update_fields=["state", "archived_at"])
    version_out_of_use.send(AdapterVersion, version=version)


def _restore(version: AdapterVersion, actor: Actor) -> None:
    unarchive_version(version, actor)
    version_in_use.send(AdapterVersion, version=version)


def _delete(version: AdapterVersion, actor: Actor) -> None:
    """Delete a version. Its number is never used again."""
    version.state, version.archived_at = VersionState.DELETED, version.archived_at or timezone.now()
    version.save(update_fields=["state", "archived_at"])
    version_out_of_use.send(AdapterVersion, version=version)
    Alias.objects.for_tenant(version.tenant).filter(previous=version).update(previous=None)
    audit.record(
        actor, "version.delete", version, tenant=version.tenant, label=label_of(version), digest=version.digest
    )


# -- adapters ----------------------------------------------------------------------------------------------------------


def archive_adapter(*, acting: Principal, adapter: Adapter) -> Adapter:
    """Archive an adapter with its versions and aliases, and free its name."""
    return archive_as(acting.actor, adapter)


def archive_as(actor: Actor, adapter: Adapter) -> Adapter:
    """Archive an adapter, also without an acting member."""
    with transaction.atomic():
        adapter = _lock_adapter(Adapter.objects.for_tenant(adapter.tenant).filter(pk=adapter.pk))
        if adapter.archived_at is None:
            adapter.archived_at = clocks.database_time()
            adapter.save(update_fields=["archived_at"])
            for version in _versions(adapter).exclude(state__in=OUT_OF_USE):
                _archive(version, adapter.archived_at)
            audit.record(actor, "adapter.archive", adapter, tenant=adapter.tenant)
            tell_adapter(adapter)
    return adapter


def restore_adapter(*, acting: Principal, adapter_id: UUID) -> Adapter:
    """Restore an adapter with the versions and aliases that were archived with it.

    Raises ArchivedNotFoundError, NameInUseError (409), StoredLimitError (403).
    """
    with transaction.atomic():
        lock_tenant(acting.tenant)
        adapter = _lock_archived(acting, adapter_id)
        if Adapter.objects.for_tenant(acting.tenant).filter(name=adapter.name, archived_at__isnull=True).exists():
            raise NameInUseError(adapter.name)
        versions = list(_versions(adapter).filter(state=VersionState.ARCHIVED, archived_at__gte=adapter.archived_at))
        require_room_for_contents(acting.tenant, adapter.name, {each.digest: each.bytes for each in versions})
        adapter.archived_at = None
        adapter.save(update_fields=["archived_at"])
        audit.record(acting.actor, "adapter.restore", adapter, tenant=acting.tenant)
        for version in versions:
            _restore(version, acting.actor)
        tell_adapter(adapter)
    return adapter


def delete_archived_adapter(*, acting: Principal, adapter_id: UUID) -> None:
    """Delete an archived adapter permanently. Raises ArchivedNotFoundError."""
    with transaction.atomic():
        _delete_adapter(_lock_archived(acting, adapter_id), acting.actor)


def _delete_adapter(adapter: Adapter, actor: Actor) -> None:
    Alias.objects.for_tenant(adapter.tenant).filter(adapter=adapter).delete()
    for version in _versions(adapter).exclude(state=VersionState.DELETED):
        _delete(version, actor)
    adapter.deleted_at = timezone.now()
    adapter.save(update_fields=["deleted_at"])
    audit.record(actor, "adapter.delete", adapter, tenant=adapter.tenant)


def _versions(adapter: Adapter) -> QuerySet[AdapterVersion]:
    versions = AdapterVersion.objects.for_tenant(adapter.tenant).filter(adapter=adapter).order_by("number")
    return versions.select_for_update(of=("self",), no_key=True).select_related("adapter", "tenant")


def _lock_archived(acting: Principal, adapter_id: UUID) -> Adapter:
    archived = Adapter.objects.for_tenant(acting.tenant).filter(archived_at__isnull=False, deleted_at__isnull=True)
    try:
        return _lock_adapter(archived.filter(pk=adapter_id))
    except Adapter.DoesNotExist:
        raise ArchivedNotFoundError(adapter_id) from None


def _lock_adapter(adapters: QuerySet[Adapter]) -> Adapter:
    return adapters.select_for_update(of=("self",), no_key=True).select_related("tenant").get()


# -- the end of the time -----------------------------------------------------------------------------------------------


def delete_expired() -> int:
    """Delete the adapters and versions whose retention period is over. Returns how many.

    Raises DeletionPausedError.
    """
    before = clocks.deletion_time() - timedelta(seconds=current().archive_keep_s)
    adapters = Adapter.objects.filter(archived_at__lt=before, deleted_at__isnull=True)
    versions = AdapterVersion.objects.filter(state=VersionState.ARCHIVED, archived_at__lt=before)
    alone = versions.filter(adapter__archived_at__isnull=True)
    ended = [_end_adapter(pk, before) for pk in list(adapters.values_list("pk", flat=True))]
    ended += [_end_version(pk, before) for pk in list(alone.values_list("pk", flat=True))]
    return sum(ended)


def _end_adapter(adapter_id: UUID, before: datetime) -> bool:
    """Delete an adapter, unless it was restored meanwhile."""
    with transaction.atomic():
        due = Adapter.objects.filter(pk=adapter_id, archived_at__lt=before, deleted_at__isnull=True)
        adapter = due.select_for_update(of=("self",), no_key=True).select_related("tenant").first()
        if adapter is not None:
            _delete_adapter(adapter, SYSTEM)
    return adapter is not None


def _end_version(version_id: UUID, before: datetime) -> bool:
    with transaction.atomic():
        due = AdapterVersion.objects.filter(pk=version_id, state=VersionState.ARCHIVED, archived_at__lt=before)
        version = due.select_for_update(of=("self",), no_key=True).select_related("adapter", "tenant").first()
        if version is not None:
            _delete(version, SYSTEM)
            tell_adapter(version.adapter)
    return version is not None
