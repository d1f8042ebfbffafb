"""Every change to a version's state and to aliases. Each is one transaction with its audit row and its event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.utils import timezone

from control_plane.adapters.registry.base_of_adapter import require_base_of_adapter
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

# Maximum number of scores that are stored with a version.
MAX_SCORES = 20
_FLAGGED = {
    EffectFlag.OVERFLOWS: "The model's numbers overflowed with {}.",
    EffectFlag.CHANGES_NOTHING: "The base model's answers did not change when a host tried {}.",
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
            "served. Its shapes fit, which does not prove that it was trained on it.",
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
            "Check its effect; upload a better one, or confirm that this one may be live (POST …/confirm-effect).",
            param="number",
            status=409,
        )


def require_ready(version: AdapterVersion) -> None:
    """Raise an error (409) for a version that cannot be called.

    Raises VersionNotReadyError, VersionArchivedError, BaseNotConfirmedError or OtherBaseOfAdapterError.
    """
    if version.state in OUT_OF_USE:
        raise VersionArchivedError(version)
    if version.state != VersionState.READY:
        raise VersionNotReadyError(version)
    if version.asks_for_base:
        raise BaseNotConfirmedError(version)
    require_base_of_adapter(version)


def require_effect(version: AdapterVersion) -> None:
    """Raise EffectNotConfirmedError (409) for a flagged version until a member confirms that it may be live."""
    if version.asks_for_effect:
        raise EffectNotConfirmedError(version)


def tell_adapter(adapter: Adapter) -> None:
    """After commit, publish the event `adapter.updated` with the adapter as the API shows it."""
    announce(adapter.tenant_id, "adapter.updated", lambda: adapter_json(adapter))


def mark_version_staging(version: AdapterVersion) -> AdapterVersion:
    """Mark a version that cannot be called yet as being staged."""
    with transaction.atomic():
        version = lock_version(version)
        if version.state in (VersionState.VALIDATED, VersionState.FAILED):
            _move(version, VersionState.STAGING)
    return version


def mark_version_ready(version: AdapterVersion, *, to_be_tried: bool = False) -> AdapterVersion:
    """Mark a version as ready: a host has it. The first ready version of an adapter becomes live automatically.

    It does not if its base or its effect must be confirmed, or if it does not meet the adapter's rule: then it becomes
    live as soon as that is so. With `to_be_tried` it also waits until a host has tried it, or had no time for that
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
    """Return True if the version becomes live as soon as a host has tried it."""
    live = Alias.objects.for_tenant(version.tenant).filter(adapter=version.adapter_id, name=LIVE)
    return version.effect is None and may_go_live(version) and not live.exists()


def go_live_untried(version: AdapterVersion) -> None:
    """Make a version live that no host had time to try, so that the adapter's name can be called."""
    with transaction.atomic():
        _go_live_first(lock_version(version), SYSTEM)


def may_go_live(version: AdapterVersion) -> bool:
    """Return True if the version may become live automatically, where the adapter has no live version yet."""
    return not version.asks_for_base and version.may_answer_first and meets_rule(version)


def _go_live_first(version: AdapterVersion, actor: Actor) -> None:
    """Make a ready version live if the adapter has no live one and the version may go live automatically."""
    if version.state == VersionState.READY and may_go_live(version):
        _point_alias(version, LIVE, actor, only_new=True)


def confirm_base(*, acting: Principal, version: AdapterVersion) -> AdapterVersion:
    """Confirm that the base model which a version names is the served one.

    Does nothing if that needs no confirmation.
    """
    with transaction.atomic():
        version = lock_version(version)
        if version.asks_for_base:
            facts = {"named": version.named_base, "served": version.base_model}
            _confirm(acting.actor, version, "version.confirm_base", "base_confirmed_at", facts)
    return version


def confirm_effect(*, acting: Principal, version: AdapterVersion) -> AdapterVersion:
    """Confirm that a flagged version may be live. Does nothing if it needs no confirmation."""
    with transaction.atomic():
        version = lock_version(version)
        if version.asks_for_effect:
            _confirm(acting.actor, version, "version.confirm_effect", "effect_confirmed_at", {"flag": version.flag})
    return version


def _confirm(actor: Actor, version: AdapterVersion, action: str, field: str, facts: dict[str, Any]) -> None:
    """Set a locked version's time of confirmation; the version may go live then."""
    setattr(version, field, timezone.now())
    version.save(update_fields=[field])
    audit.record(actor, action, version, tenant=version.tenant, label=label_of(version), **facts)
    _go_live_first(version, actor)
    tell_adapter(version.adapter)


def mark_version_failed(
    version: AdapterVersion, error: Mapping[str, Any], *, ready_too: bool = False
) -> AdapterVersion:
    """Mark a version as failed: no host could stage it, or, with `ready_too`, no host will have it any more.

    `error` is `{code, message, fix}`.
    """
    states = [VersionState.VALIDATED, VersionState.STAGING, *([VersionState.READY] if ready_too else [])]
    with transaction.atomic():
        version = lock_version(version)
        if version.state in states:
            _move(version, VersionState.FAILED, error)
    return version


def mark_version_overflowed(version: AdapterVersion) -> None:
    """Record that a request overflowed the model's numbers with a version. Only the first time is stored."""
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
    """Record the effect of a version in a host's trial. The first result is final, except for a pending agreement."""
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
    """Record a new flag in the audit log and for webhooks: versions of a followed branch arrive without a member."""
    if version.flag is not None and version.flag != before:
        audit.record(SYSTEM, "version.flag", version, tenant=version.tenant, label=label_of(version), flag=version.flag)


def record_score(version: AdapterVersion, score: Mapping[str, Any]) -> None:
    """Store the version's score on an evaluation set, in place of an earlier score on the same set."""
    with transaction.atomic():
        version = lock_version(version)
        others = [each for each in version.evaluations if each["set"] != score["set"]]
        version.evaluations = [dict(score), *others][:MAX_SCORES]
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
    """Make an archived version one that is to be placed; leave others unchanged. The caller has locked the adapter."""
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
    """Point `alias` at `version`. Running requests keep the version they started with.

    `again`: the alias pointed at it before, so neither a rule nor a flag prevents the return.

    Raises VersionNotReadyError, VersionArchivedError, BaseNotConfirmedError, EffectNotConfirmedError or
    RuleUnmetError (409).
    """
    with transaction.atomic():
        version = lock_version(version)
        require_ready(version)
        if not again:
            # Locked: the rule compares the version with the one that the alias points at, which must stay till the end.
            aliases = Alias.objects.for_tenant(version.tenant).select_for_update(of=("self",))
            now = aliases.filter(adapter=version.adapter_id, name=alias).first()
            # An alias that points at the version already: promoting it then only ends a canary.
            if now is None or now.version_id != version.pk:
                require_effect(version)
            require_rule(version, alias)
        return _point_alias(version, alias, acting.actor)


def _point_alias(version: AdapterVersion, name: str, actor: Actor, *, only_new: bool = False) -> Alias:
    """Point an alias at a version, which ends the alias's canary. `only_new` leaves an existing alias unchanged."""
    aliases = Alias.objects.for_tenant(version.tenant).select_for_update(of=("self",)).select_related("version")
    first = {"tenant": version.tenant, "version": version}
    # Two versions may come at once: the second sees the alias of the first.
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
