"""Every change to a version's state and to aliases. Each is one transaction with its audit row and its event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.utils import timezone

from control_plane.adapters.registry.base_of_adapter import require_own_base
from control_plane.adapters.registry.locks import lock_version
from control_plane.adapters.registry.models import (
    LIVE,
    OUT_OF_USE,
    Adapter,
    AdapterVersion,
    AgreementOutcome,
    Alias,
    EffectFlag,
    VersionState,
)
from control_plane.adapters.registry.payloads import adapter_json
from control_plane.adapters.registry.promotion_rules import meets_rule, require_rule
from control_plane.adapters.registry.signals import live_version_changed
from control_plane.core.errors import LorikeetError
from control_plane.core.writes import announce
from control_plane.identity.access.actor import SYSTEM, Actor
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit import actions as audit

MOST_SCORES = 20
"""That are kept with a version."""
_FLAGGED = {
    EffectFlag.OVERFLOWS: "The model's numbers overflowed with {}.",
    EffectFlag.CHANGES_NOTHING: "The base model's answers stayed as they are when a host tried {}.",
    EffectFlag.DIFFERS: "{} differs from what it is on the unquantised base, by more than the base itself does.",
}


class VersionNotReadyError(LorikeetError):
    def __init__(self, version: AdapterVersion) -> None:
        super().__init__(
            "version_not_ready",
            f"Version {version.number} is {version.state}; only a ready version can be called.",
            "Restage it, or wait until it is ready, and promote it then.",
            param="number",
            status=409,
        )


class VersionArchivedError(LorikeetError):
    def __init__(self, version: AdapterVersion) -> None:
        super().__init__(
            "version_archived",
            f"Version {version.number} is archived.",
            "Restore it first.",
            param="number",
            status=409,
        )


class BaseNotConfirmedError(LorikeetError):
    def __init__(self, version: AdapterVersion) -> None:
        super().__init__(
            "base_not_confirmed",
            f"Version {version.number} names {version.named_base} as its base model, but {version.base_model} is "
            "served. Its shapes fit, which is no proof.",
            f"Try it as {label_of(version)}, and confirm the base (POST …/confirm-base) if it is the same model.",
            param="number",
            status=409,
        )


class EffectNotConfirmedError(LorikeetError):
    def __init__(self, version: AdapterVersion) -> None:
        assert version.flag is not None
        super().__init__(
            "effect_not_confirmed",
            _FLAGGED[version.flag].format(label_of(version)),
            "Look at its effect; upload a better one, or say that this one may be live as it is "
            "(POST …/confirm-effect).",
            param="number",
            status=409,
        )


def require_ready(version: AdapterVersion) -> None:
    """Raises VersionNotReadyError, VersionArchivedError, BaseNotConfirmedError or OtherBaseOfAdapterError (409)."""
    if version.state in OUT_OF_USE:
        raise VersionArchivedError(version)
    if version.state != VersionState.READY:
        raise VersionNotReadyError(version)
    if version.asks_for_base:
        raise BaseNotConfirmedError(version)
    require_own_base(version)


def require_effect(version: AdapterVersion) -> None:
    """Raises EffectNotConfirmedError (409) for one that is flagged, until somebody says that it may be live."""
    if version.asks_for_effect:
        raise EffectNotConfirmedError(version)


def tell_adapter(adapter: Adapter) -> None:
    """After commit, the event `adapter.updated` with the adapter as the API shows it."""
    announce(adapter.tenant_id, "adapter.updated", lambda: adapter_json(adapter))


def mark_version_staging(version: AdapterVersion) -> AdapterVersion:
    """A version that is not callable yet is being brought to its hosts."""
    with transaction.atomic():
        version = lock_version(version)
        if version.state in (VersionState.VALIDATED, VersionState.FAILED):
            _move(version, VersionState.STAGING)
    return version


def mark_version_ready(version: AdapterVersion, *, to_be_tried: bool = False) -> AdapterVersion:
    """A host has it. The first ready version of an adapter becomes live by itself, so that its name can be called.

    Not if its base or its effect has to be confirmed, or the adapter has a rule that it does not meet: then it becomes
    live with that. With `to_be_tried` not before a host has tried it, or had no time for that again
    (`go_live_untried`).
    """
    with transaction.atomic():
        version = lock_version(version)
        if version.state == VersionState.READY or version.state in OUT_OF_USE:
            return version
        version.ready_at = timezone.now()
        _move(version, VersionState.READY)
        if version.effect is not None or not to_be_tried:
            _go_live_first(version, SYSTEM)
    return version


def waits_for_trial(version: AdapterVersion) -> bool:
    """Whether it will be live when a host has tried it."""
    live = Alias.objects.for_tenant(version.tenant).filter(adapter=version.adapter_id, name=LIVE)
    return version.effect is None and may_go_live(version) and not live.exists()


def go_live_untried(version: AdapterVersion) -> None:
    """No host had time to try it: that is no reason to keep its name from being called any longer."""
    with transaction.atomic():
        _go_live_first(lock_version(version), SYSTEM)


def may_go_live(version: AdapterVersion) -> bool:
    """By itself, where nothing is live yet: nothing that is known of it speaks against it."""
    return not version.asks_for_base and version.may_answer_first and meets_rule(version)


def _go_live_first(version: AdapterVersion, actor: Actor) -> None:
    """If it is ready, nothing is live, and nothing speaks against it."""
    if version.state == VersionState.READY and may_go_live(version):
        _point_alias(version, LIVE, actor, only_new=True)


def confirm_base(*, acting: Principal, version: AdapterVersion) -> AdapterVersion:
    """Somebody says that the base which the version names is the served one. Does nothing where nobody asked."""
    with transaction.atomic():
        version = lock_version(version)
        if not version.asks_for_base:
            return version
        version.base_confirmed_at = timezone.now()
        version.save(update_fields=["base_confirmed_at"])
        audit.record(
            acting.actor,
            "version.confirm_base",
            version,
            tenant=version.tenant,
            label=label_of(version),
            named=version.named_base,
            served=version.base_model,
        )
        _go_live_first(version, acting.actor)
        tell_adapter(version.adapter)
    return version


def confirm_effect(*, acting: Principal, version: AdapterVersion) -> AdapterVersion:
    """Somebody says that a flagged version may be live as it is. Does nothing where nobody asked."""
    with transaction.atomic():
        version = lock_version(version)
        if not version.asks_for_effect:
            return version
        version.effect_confirmed_at = timezone.now()
        version.save(update_fields=["effect_confirmed_at"])
        audit.record(
            acting.actor,
            "version.confirm_effect",
            version,
            tenant=version.tenant,
            label=label_of(version),
            flag=version.flag,
        )
        _go_live_first(version, acting.actor)
        tell_adapter(version.adapter)
    return version


def mark_version_failed(
    version: AdapterVersion, error: Mapping[str, Any], *, ready_too: bool = False
) -> AdapterVersion:
    """No host could take it, or, with `ready_too`, none will have it any more. `error` is `{code, message, fix}`."""
    states = [VersionState.VALIDATED, VersionState.STAGING, *([VersionState.READY] if ready_too else [])]
    with transaction.atomic():
        version = lock_version(version)
        if version.state in states:
            _move(version, VersionState.FAILED, error)
    return version


def mark_version_overflowed(version: AdapterVersion) -> None:
    """A request ended because the model's numbers overflowed with it. The first time is kept."""
    with transaction.atomic():
        version = lock_version(version)
        if version.overflowed_at is not None:
            return
        flag, version.overflowed_at = version.flag, timezone.now()
        version.save(update_fields=["overflowed_at"])
        audit.record(SYSTEM, "version.overflow", version, tenant=version.tenant, label=label_of(version))
        _note_flag(version, flag)
        tell_adapter(version.adapter)


def record_effect(version: AdapterVersion, effect: Mapping[str, Any]) -> None:
    """What the version did when a host tried it. The first word is kept, but for an agreement that is pending."""
    with transaction.atomic():
        version = lock_version(version)
        first, pending, flag = version.effect is None, version.agreement == AgreementOutcome.PENDING, version.flag
        version.effect = dict(effect)
        if not first and (not pending or version.agreement == AgreementOutcome.PENDING):
            return
        version.save(update_fields=["effect"])
        figures = {"verdict": effect["verdict"], "largest_change": effect["largest_change"]}
        audit.record(
            SYSTEM,
            "version.probe" if first else "version.compare",
            version,
            tenant=version.tenant,
            label=label_of(version),
            **(figures if first else {}),
            **({"agreement": version.agreement} if version.agreement else {}),
        )
        _note_flag(version, flag)
        if first:
            _go_live_first(version, SYSTEM)
        tell_adapter(version.adapter)


def _note_flag(version: AdapterVersion, before: EffectFlag | None) -> None:
    """In the log and to webhooks, as nobody may be looking: a branch that is followed brings versions by itself."""
    if version.flag is not None and version.flag != before:
        audit.record(SYSTEM, "version.flag", version, tenant=version.tenant, label=label_of(version), flag=version.flag)


def record_score(version: AdapterVersion, score: Mapping[str, Any]) -> None:
    """How the version answered an evaluation set. Of each set the last score is kept."""
    with transaction.atomic():
        version = lock_version(version)
        others = [each for each in version.evaluations if each["set"] != score["set"]]
        version.evaluations = [dict(score), *others][:MOST_SCORES]
        version.save(update_fields=["evaluations"])
        audit.record(
            SYSTEM,
            "version.evaluate",
            version,
            tenant=version.tenant,
            label=label_of(version),
            **{name: score[name] for name in ("set", "metric", "items", "score", "base", "live")},
        )
        _go_live_first(version, SYSTEM)
        tell_adapter(version.adapter)


def unarchive_version(version: AdapterVersion, actor: Actor) -> None:
    """Make an archived version one that is to be placed. Does nothing to others. Its caller has locked the adapter."""
    if version.state != VersionState.ARCHIVED:
        return
    version.state, version.error, version.archived_at = VersionState.VALIDATED, None, None
    version.save(update_fields=["state", "error", "archived_at"])
    audit.record(actor, "version.restore", version, tenant=version.tenant, label=label_of(version))


def _move(version: AdapterVersion, state: VersionState, error: Mapping[str, Any] | None = None) -> None:
    before, version.state, version.error = version.state, state, dict(error) if error else None
    version.save(update_fields=["state", "error", "ready_at"])
    audit.record(
        SYSTEM, f"version.{state.value}", version, tenant=version.tenant, label=label_of(version), before=before
    )
    tell_adapter(version.adapter)


def promote_version(*, acting: Principal, version: AdapterVersion, alias: str = LIVE, again: bool = False) -> Alias:
    """Point `alias` at `version`. Requests that run keep the version they started with. With `again` it pointed there
    before: neither a rule nor a flag keeps anybody from going back.

    Raises VersionNotReadyError, VersionArchivedError, BaseNotConfirmedError, EffectNotConfirmedError or
    RuleUnmetError (409).
    """
    with transaction.atomic():
        version = lock_version(version)
        require_ready(version)
        if not again:
            if not _points_at(version, alias):
                require_effect(version)
            require_rule(version, alias)
        return _point_alias(version, alias, acting.actor)


def _points_at(version: AdapterVersion, alias: str) -> bool:
    """Then promoting it only ends a canary."""
    return Alias.objects.for_tenant(version.tenant).filter(name=alias, version=version).exists()


def _point_alias(version: AdapterVersion, name: str, actor: Actor, *, only_new: bool = False) -> Alias:
    """Whatever canary the alias had is over: it was promoted, or overruled. `only_new` leaves one that is there."""
    aliases = Alias.objects.for_tenant(version.tenant).select_for_update(of=("self",)).select_related("version")
    first = {"tenant": version.tenant, "version": version}
    # Two versions may come at once: the second finds what the first has made.
    alias, created = aliases.get_or_create(adapter=version.adapter, name=name, defaults=first)
    if only_new and not created:
        return alias
    before = None if created else alias.version
    if not created:
        changed = ["canary", "canary_percent", "canary_since"]
        alias.canary, alias.canary_percent, alias.canary_since = None, None, None
        if before != version:
            alias.version, alias.previous = version, before
            changed += ["version", "previous", "updated_at"]
        alias.save(update_fields=changed)
    audit.record(
        actor,
        "version.promote",
        version,
        tenant=version.tenant,
        label=label_of(version),
        alias=name,
        version_before=before.number if before else None,
    )
    if name == LIVE and before != version:
        live_version_changed.send(sender=AdapterVersion, version=version)
    tell_adapter(version.adapter)
    return alias


def label_of(version: AdapterVersion) -> str:
    return f"{version.adapter.name}@v{version.number}"
