"""`model: "hub:org/name@revision"` in a request: imported at its first use, then a version like any other.

A revision is pinned to the commit that it means at the first use. The import is the ordinary one, with this tenant's
token, limits and turn: that another tenant has the same repository gives nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from control_plane.adapters.imports.actions import begin_import
from control_plane.adapters.imports.hub_policy import adapter_name_of, allows, full_name, policy_of
from control_plane.adapters.imports.progress import fetched_bytes
from control_plane.adapters.imports.sources import HubSource, SourceRefusedError, parse_source
from control_plane.adapters.registry.models import AdapterVersion, HubModel, Upload, UploadState, VersionState
from control_plane.adapters.registry.queries import staging_progress
from control_plane.adapters.registry.resolve import (
    LONGEST_NAME,
    ModelLoadingError,
    ModelNotFoundError,
    ModelNotReadyError,
    ResolvedModel,
    not_ready,
    resolved,
)
from control_plane.adapters.registry.versions import EffectNotConfirmedError, label_of
from control_plane.core.config import current
from control_plane.core.errors import LorikeetError
from control_plane.core.jobs import clocks
from control_plane.identity.access.principal import Principal
from control_plane.identity.tenants.models import Tenant

RETRY_S = 5
_DECIDED = (UploadState.ACCEPTED, UploadState.REFUSED, UploadState.CANCELLED)
_STAGED = (VersionState.READY, VersionState.FAILED, VersionState.ARCHIVED)


class HubModelsOffError(LorikeetError):
    def __init__(self, name: str, fix: str) -> None:
        super().__init__(
            "hub_model_not_allowed",
            f'This tenant does not let requests import "{name}" from the Hub.',
            fix,
            param="model",
            status=403,
        )


class HubModelLoadingError(ModelLoadingError):
    def __init__(self, name: str, progress: str) -> None:
        super().__init__(
            "adapter_loading",
            f'The model "{name}" is being imported for its first use: {progress}.',
            "Send the request again in a few seconds; the console shows the import on the page Upload adapter.",
            status=503,
            retry_after_s=RETRY_S,
        )


class HubModelFailedError(LorikeetError):
    """Told from what is remembered for a while, so that a name that cannot be served costs one import."""

    def __init__(self, found: HubModel) -> None:
        reason = found.upload.reason or {"code": "import_cancelled", "message": "It was cancelled.", "fix": ""}
        super().__init__(
            reason["code"],
            f'The model "{found.name}" could not be imported: {reason["message"]}',
            f"{reason['fix']} It is tried again by the first request after {current().hub_model_retry_s} s.".strip(),
            param="model",
            status=404 if reason["code"] == "source_not_found" else 409,
        )


class TooManyHubModelsError(LorikeetError):
    retry_after_s = 60.0

    def __init__(self) -> None:
        super().__init__(
            "too_many_hub_models",
            f"Requests of this tenant have begun {current().hub_models_per_hour} imports within an hour.",
            "Import adapters beforehand, or ask the operator to raise LORIKEET_HUB_MODELS_PER_HOUR.",
            param="model",
            status=429,
        )


def resolve_hub_model(*, acting: Principal, name: str) -> ResolvedModel:
    """What a repository's name means now; begins its import at the first use.

    Raises HubModelsOffError (403), ModelNotFoundError (404), HubModelLoadingError (503), HubModelFailedError (409),
    TooManyHubModelsError (429), and what `begin_import` does.
    """
    source = _parse(name)
    _require_allowed(acting.tenant, source)
    wanted = full_name(source)
    found = _known(acting.tenant, wanted)
    if found is None or _is_over(found):
        found = _begin(acting, source, wanted)
    return _resolved(found, name)


def find_hub_model(tenant: Tenant, name: str) -> ResolvedModel:
    """Return what a repository's name means now, and never begin its import.

    Raises ModelNotFoundError (404) where the name is not allowed or was never imported; otherwise as
    `resolve_hub_model` does.
    """
    source = _parse(name)
    found = _known(tenant, full_name(source)) if allows(policy_of(tenant), source.shown) else None
    if found is None or _is_over(found):
        raise ModelNotFoundError(name, [])
    return _resolved(found, name)


def _resolved(found: HubModel, name: str) -> ResolvedModel:
    if found.upload.state not in _DECIDED:
        raise HubModelLoadingError(name, _progress(found))
    if found.upload.version is None:
        raise HubModelFailedError(found)
    return resolved(_usable(found.upload.version, name), name)


def _parse(name: str) -> HubSource:
    if len(name) > LONGEST_NAME:
        raise ModelNotFoundError(name, [])
    try:
        source = parse_source(name)
    except SourceRefusedError as error:
        raise ModelNotFoundError(name, [], message=f"{error.message} {error.fix}") from None
    assert isinstance(source, HubSource)
    return source


def _require_allowed(tenant: Tenant, source: HubSource) -> None:
    policy = policy_of(tenant)
    if allows(policy, source.shown):
        return
    fix = "An owner can allow it in the settings (PUT hub-models); or import the adapter, and call it by its own name."
    if policy.enabled:
        fix = f"Allowed are repositories of {', '.join(policy.organizations)}. {fix}"
    raise HubModelsOffError(source.shown, fix)


def _known(tenant: Tenant, wanted: str) -> HubModel | None:
    known = HubModel.objects.for_tenant(tenant).select_related("upload__version__adapter")
    return known.defer("upload__report", "upload__version__report").filter(name=wanted).first()


def _is_over(found: HubModel) -> bool:
    """Whether the next import of it may begin: it failed long enough ago, or what it brought was deleted."""
    upload = found.upload
    if upload.state in (UploadState.REFUSED, UploadState.CANCELLED):
        retry_s, ago_s = current().hub_model_retry_s, (clocks.database_time() - upload.updated_at).total_seconds()
        return abs(ago_s) > retry_s  # later than now: a clock stepped back
    version = upload.version
    return upload.state == UploadState.ACCEPTED and (version is None or version.state == VersionState.DELETED)


def _begin(acting: Principal, source: HubSource, wanted: str) -> HubModel:
    with transaction.atomic():
        # Of two at once the second finds what the first began.
        Tenant.objects.select_for_update(no_key=True).get(pk=acting.tenant.pk)
        found = _known(acting.tenant, wanted)
        if found is not None and not _is_over(found):
            return found
        now = timezone.now()
        if _imports_since(acting.tenant, now - timedelta(hours=1)) >= current().hub_models_per_hour:
            raise TooManyHubModelsError
        upload = begin_import(
            acting=acting,
            name=adapter_name_of(source),
            description=f"Imported for requests that name {source.shown}.",
            source=wanted,
        )
        made, _ = HubModel.objects.for_tenant(acting.tenant).update_or_create(
            tenant=acting.tenant, name=wanted, defaults={"upload": upload, "requested_at": now}
        )
    return made


def _imports_since(tenant: Tenant, moment: datetime) -> int:
    """Also those of a name that failed before and was tried again."""
    asked_for = HubModel.objects.for_tenant(tenant).values("upload__adapter_name")
    return Upload.objects.for_tenant(tenant).filter(created_at__gt=moment, adapter_name__in=asked_for).count()


def _progress(found: HubModel) -> str:
    upload = found.upload
    if upload.reason:
        return f"it waits, since {upload.reason['message'].rstrip('.')}"
    if upload.state == UploadState.RECEIVED:
        return "it waits for its turn"
    fetched = fetched_bytes(upload)
    if fetched is None:
        return "it is being checked"
    return (
        f"it is being fetched ({min(100 * fetched // upload.bytes, 100)} %)" if upload.bytes else "it is being fetched"
    )


def _usable(version: AdapterVersion, name: str) -> AdapterVersion:
    """One that could become live by itself: nobody has looked at it before."""
    if version.state not in _STAGED:
        raise HubModelLoadingError(name, f"it is being brought to the hosts ({staging_progress(version)} %)")
    if version.state != VersionState.READY or version.adapter.archived_at is not None:
        raise not_ready(version)
    if version.asks_for_base:
        raise ModelNotReadyError(
            "base_not_confirmed",
            f"{label_of(version)} names {version.named_base} as its base model, but {version.base_model} is served.",
            "Confirm the base in the console if it is the same model.",
            status=409,
        )
    if not version.may_answer_first:
        flagged = EffectNotConfirmedError(version)
        fix = f'{flagged.fix} "{label_of(version)}" calls it all the same.'
        raise ModelNotReadyError(flagged.code, flagged.message, fix, status=flagged.status)
    return version
