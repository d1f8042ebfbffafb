"""Aliases besides promotion: canaries by weight, rollback, removal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from control_plane.adapters.registry.locks import lock_version
from control_plane.adapters.registry.models import LIVE, NAME_FORM, Adapter, AdapterVersion, Alias
from control_plane.adapters.registry.promotion_rules import require_rule
from control_plane.adapters.registry.versions import promote_version, require_effect, require_ready, tell_adapter
from control_plane.core.errors import LorikeetError, NotFoundError
from control_plane.core.jobs import clocks
from control_plane.identity.access.actor import SYSTEM, Actor
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit import actions as audit
from control_plane.identity.tenants.models import Tenant


class AliasNotFoundError(NotFoundError):
    def __init__(self, adapter: Adapter, name: str) -> None:
        super().__init__(
            f'The adapter "{adapter.name}" has no alias "{name[:64]}".',
            f"GET adapters/{adapter.name} lists its aliases.",
            code="alias_not_found",
            param="alias",
        )


class AliasError(LorikeetError):
    """A change that the alias does not permit in its present state."""

    def __init__(self, code: str, message: str, fix: str, param: str = "alias", status: int = 409) -> None:
        super().__init__(code, message, fix, param=param, status=status)


def set_alias(*, acting: Principal, version: AdapterVersion, name: str) -> Alias:
    """Create or move the alias. Raises VersionNotReadyError, and AliasError (400) for an invalid name."""
    if not NAME_FORM.match(name) or (name[0] == "v" and name[1:].isdigit()):
        raise AliasError(
            "bad_alias_name",
            f'"{name[:64]}" cannot be an alias: it is not a valid name, or reads like a version number.',
            "Use lower-case letters, digits, dots, hyphens and underscores, e.g. prod.",
            status=400,
        )
    return promote_version(acting=acting, version=version, alias=name)


def remove_alias(*, acting: Principal, adapter: Adapter, name: str) -> None:
    """Remove an alias; requests that name it are then refused.

    Raises AliasNotFoundError, AliasError (409) for `live`.
    """
    if name == LIVE:
        raise AliasError(
            "live_stays", "The alias live cannot be removed.", "Promote another version, or archive the adapter."
        )
    with transaction.atomic():
        alias = _lock(acting.tenant, adapter, name)
        audit.record(acting.actor, "alias.remove", alias, tenant=acting.tenant, label=label(alias))
        alias.delete()
        tell_adapter(adapter)


def start_canary(*, acting: Principal, version: AdapterVersion, name: str, percent: int) -> Alias:
    """Give `version` a share of the alias's requests, or change the share; its figures count from the start.

    Raises AliasNotFoundError, VersionNotReadyError, EffectNotConfirmedError, RuleUnmetError (409), AliasError (409) if
    the alias already points at it.
    """
    with transaction.atomic():
        version = lock_version(version)
        alias = _lock(acting.tenant, version.adapter, name)
        require_ready(version)
        if alias.version_id == version.pk:
            raise AliasError("already_there", f"{label(alias)} is version {version.number}.", "Choose another version.")
        require_effect(version)
        require_rule(version, name)
        if (alias.canary_id, alias.canary_percent) == (version.pk, percent):
            return alias
        if alias.canary_id != version.pk:
            alias.canary_since, alias.rolled_back = clocks.database_time(), None
        alias.canary, alias.canary_percent = version, percent
        _save_canary(alias, acting.actor, "alias.canary", version=version.number, percent=percent)
    return alias


def stop_canary(*, acting: Principal, adapter: Adapter, name: str) -> Alias:
    """End the canary: all requests go to the alias's regular version again. Does nothing without a canary."""
    with transaction.atomic():
        alias = _lock(acting.tenant, adapter, name)
        if alias.canary_id is not None:
            _end_canary(alias, acting.actor, "alias.canary_stop", {})
    return alias


def fail_canary(alias: Alias, reason: Mapping[str, Any]) -> bool:
    """End a canary for its figures, unless it has ended or changed since. `reason` has the code and message."""
    with transaction.atomic():
        try:
            now = _lock(alias.tenant, alias.adapter, alias.name)
        except AliasNotFoundError:
            return False
        if now.canary_id is None or (now.canary_id, now.canary_since) != (alias.canary_id, alias.canary_since):
            return False
        assert now.canary is not None
        now.rolled_back = {"version": now.canary.number, "at": timezone.now().isoformat(), **reason}
        _end_canary(now, SYSTEM, "alias.canary_fail", reason)
    return True


def roll_back(*, acting: Principal, adapter: Adapter, name: str) -> Alias:
    """Point the alias at its previous version; a second time, back again. Raises AliasError (409) if there is none."""
    # Read without its lock: every change of an alias locks the version first.
    alias = find_alias(acting.tenant, adapter, name)
    if alias.previous is None:
        raise AliasError(
            "nothing_before", f"{label(alias)} has not pointed at another version.", "Promote the one you want."
        )
    return promote_version(acting=acting, version=alias.previous, alias=name, again=True)


def label(alias: Alias) -> str:
    return f"{alias.adapter.name}@{alias.name}"


def _lock(tenant: Tenant, adapter: Adapter, name: str) -> Alias:
    return _find(_with_versions(tenant).select_for_update(of=("self",)), adapter, name)


def _with_versions(tenant: Tenant) -> QuerySet[Alias]:
    return Alias.objects.for_tenant(tenant).select_related("tenant", "adapter", "version", "canary", "previous")


def find_alias(tenant: Tenant, adapter: Adapter, name: str) -> Alias:
    """Return an alias with its versions. Raises AliasNotFoundError."""
    return _find(_with_versions(tenant), adapter, name)


def _find(aliases: QuerySet[Alias], adapter: Adapter, name: str) -> Alias:
    # An invalid name is not queried: databases reject some characters.
    alias = aliases.filter(adapter=adapter, name=name).first() if NAME_FORM.match(name) else None
    if alias is None:
        raise AliasNotFoundError(adapter, name)
    return alias


def _end_canary(alias: Alias, actor: Actor, action: str, detail: Mapping[str, Any]) -> None:
    version = alias.canary.number if alias.canary else None
    alias.canary, alias.canary_percent, alias.canary_since = None, None, None
    _save_canary(alias, actor, action, version=version, **detail)


def _save_canary(alias: Alias, actor: Actor, action: str, **detail: Any) -> None:
    # `updated_at` is not saved: the alias still points at the same version.
    alias.save(update_fields=["canary", "canary_percent", "canary_since", "rolled_back"])
    audit.record(actor, action, alias, tenant=alias.tenant, label=label(alias), **detail)
    tell_adapter(alias.adapter)
