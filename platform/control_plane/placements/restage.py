"""Bringing versions to hosts again."""

from __future__ import annotations

from django.db import transaction

from control_plane.access.principal import Principal
from control_plane.adapters.locks import lock_version
from control_plane.adapters.models import OUT_OF_USE, AdapterVersion
from control_plane.adapters.versions import VersionArchivedError, label_of, mark_version_staging, tell_adapter
from control_plane.audit import actions as audit
from control_plane.errors import LorikeetError
from control_plane.fleet import actions as fleet
from control_plane.fleet.base_model import ServedBase, served_base


class OtherBaseModelError(LorikeetError):
    def __init__(self, version: AdapterVersion, base: ServedBase) -> None:
        error = fleet.of_other_base(version, base)
        super().__init__(error["code"], error["message"], error["fix"], param="number", status=409)


class NoHostsError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "no_hosts",
            "No engine host serves the base model, so there is nowhere to stage the version.",
            "Name the hosts in LORIKEET_ENGINE_HOSTS and start the engine; the hosts page shows those in quarantine.",
            status=409,
        )


def restage_version(*, acting: Principal, version: AdapterVersion) -> AdapterVersion:
    """Bring the version to every active host again. A ready version stays callable meanwhile.

    Raises NoHostsError, OtherBaseModelError or VersionArchivedError (409).
    """
    base = served_base()
    with transaction.atomic():
        version = mark_version_staging(lock_version(version))
        if version.state in OUT_OF_USE:
            raise VersionArchivedError(version)
        if base is not None and version.base_digest not in base.adapters_of:
            raise OtherBaseModelError(version, base)
        audit.record(acting.actor, "version.restage", version, tenant=acting.tenant, label=label_of(version))
        if not fleet.restage_version(version):
            raise NoHostsError
        tell_adapter(version.adapter)
    return version
