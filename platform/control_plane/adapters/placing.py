"""Where an adapter's versions should be: on hosts, staged again, or nowhere."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from control_plane.adapters.actions import label_of, lock_version, mark_version_staging, tell_adapter
from control_plane.adapters.models import Adapter, AdapterVersion, Alias, VersionState
from control_plane.audit import actions as audit
from control_plane.errors import LorikeetError
from control_plane.fleet import actions as fleet
from control_plane.principal import Principal


class NoHostsError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "no_hosts",
            "No engine host is configured, so there is nowhere to stage the version.",
            "Name the hosts in LORIKEET_ENGINE_HOSTS and start the engine.",
            status=409,
        )


def restage_version(*, acting: Principal, version: AdapterVersion) -> AdapterVersion:
    """Bring the version to every active host again. A ready version stays callable meanwhile.

    Raises NoHostsError (409).
    """
    with transaction.atomic():
        version = mark_version_staging(lock_version(version))
        audit.record(acting.actor, "version.restage", version, tenant=acting.tenant, label=label_of(version))
        if not fleet.restage_version(version):
            raise NoHostsError
        tell_adapter(version.adapter)
    return version


def archive_adapter(*, acting: Principal, adapter: Adapter) -> Adapter:
    """Take the adapter out of use and its name free. Its usage stays; hosts forget its versions."""
    with transaction.atomic():
        adapter = Adapter.objects.for_tenant(acting.tenant).select_for_update(of=("self",)).get(pk=adapter.pk)
        if adapter.archived_at is not None:
            return adapter
        Alias.objects.for_tenant(acting.tenant).filter(adapter=adapter).delete()
        for version in AdapterVersion.objects.for_tenant(acting.tenant).filter(adapter=adapter):
            version.state = VersionState.ARCHIVED
            version.save(update_fields=["state"])
            fleet.withdraw_version(version)
        adapter.archived_at = timezone.now()
        adapter.save(update_fields=["archived_at"])
        audit.record(acting.actor, "adapter.archive", adapter, tenant=acting.tenant)
        tell_adapter(adapter)
    return adapter
