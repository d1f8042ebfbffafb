"""`model: "hub:org/name@revision"` in a request: imported at its first use, then a version like any other.

A revision is pinned to its commit at the first use. The import is an ordinary one, with this tenant's token, limits and
place in the queue: another tenant's import of the same repository is not used.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from control_plane.adapters.imports.actions import begin_import
from control_plane.adapters.imports.hub_policy import adapter_name_of, allows, full_name, policy_of
from control_plane.adapters.imports.models import HubModel
from control_plane.adapters.imports.progress import fetched_bytes
from control_plane.adapters.imports.sources import HubSource, SourceRefusedError, parse_source
from control_plane.adapters.registry.models import AdapterVersion, VersionState
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
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.core.config import current
from control_plane.core.errors import LorikeetError
from control_plane.core.jobs import clocks
from control_plane.identity.access.principal import Principal
from control_plane.identity.tenants.models import Tenant

RETRY_S = 5  # sent to the client in Retry-After
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
    """An import that failed. It is remembered for a while, so that repeated requests cost one import."""

    def __init__(self, model: HubModel) -> None:
        reason = model.upload.reason or {"code": "import_cancelled", "message": "It was cancelled.", "fix": ""}
        super().__init__(
            reason["code"],
            f'The model "{model.name}" could not be imported: {reason["message"]}',
            f"{reason['fix']} The first request after {current().hub_model_retry_s} s tries again.".strip(),
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
    """Return the version that a repository's name means; begin its import at the first use.

    Raises HubModelsOffError (403), ModelNotFoundError (404), HubModelLoadingError (503), HubModelFailedError (409),
    TooManyHubModelsError (429), and what `begin_import` does.
    """
    source = _parse(name)
    _require_allowed(acting.tenant, source)
    wanted = full_name(source)
    model = _known(acting.tenant, wanted)
    if model is None or _is_over(model):
        model = _begin(acting, source, wanted)
    return _resolved(model, name)


def find_hub_model(tenant: Tenant, name: str) -> ResolvedModel:
    """Return the version that a repository's name means, without ever beginning its import.

    Raises ModelNotFoundError (404) where the name is not allowed or was never imported; otherwise as
    `resolve_hub_model` does.
    """
    source = _parse(name)
    model = _known(tenant, full_name(source)) if allows(policy_of(tenant), source.shown) else None
    if model is None or _is_over(model):
        raise ModelNotFoundError(name, [])
    return _resolved(model, name)


def _resolved(model: HubModel, name: str) -> ResolvedModel:
    if model.upload.state not in _DECIDED:
        raise HubModelLoadingError(name, _progress(model))
    if model.upload.version is None:
        raise HubModelFailedError(model)
    return resolved(_usable(model.upload.version, name), name)


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
    fix = "An owner can allow it in the settings (PUT hub-models); or import the adapter, and use the adapter's name."
    if policy.enabled:
        fix = f"Allowed are repositories of {', '.join(policy.organizations)}. {fix}"
    raise HubModelsOffError(source.shown, fix)


def _known(tenant: Tenant, wanted: str) -> HubModel | None:
    known = HubModel.objects.for_tenant(tenant).select_related("upload__version__adapter")
    return known.defer("upload__report", "upload__version__report").filter(name=wanted).first()


def _is_over(model: HubModel) -> bool:
    """Return True if a new import may begin: the last failed long enough ago, or its version was deleted."""
    upload = model.upload
    if upload.state in (UploadState.REFUSED, UploadState.CANCELLED):
        retry_s, ago_s = current().hub_model_retry_s, (clocks.database_time() - upload.updated_at).total_seconds()
        return abs(ago_s) > retry_s  # negative after a clock stepped back
    version = upload.version
    return upload.state == UploadState.ACCEPTED and (version is None or version.state == VersionState.DELETED)


def _begin(acting: Principal, source: HubSource, wanted: str) -> HubModel:
    with transaction.atomic():
        # Of two simultaneous requests the second sees the import of the first.
        Tenant.objects.select_for_update(no_key=True).get(pk=acting.tenant.pk)
        model = _known(acting.tenant, wanted)
        if model is not None and not _is_over(model):
            return model
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
    """Return the number of a tenant's imports for requests, repeated ones of failed names included."""
    names = HubModel.objects.for_tenant(tenant).values("upload__adapter_name")
    return Upload.objects.for_tenant(tenant).filter(created_at__gt=moment, adapter_name__in=names).count()


def _progress(model: HubModel) -> str:
    upload = model.upload
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
    """Return the version if it may answer without a promotion by a member; else raise the reason."""
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
        fix = f'{flagged.fix} Requests that name "{label_of(version)}" use it nevertheless.'
        raise ModelNotReadyError(flagged.code, flagged.message, fix, status=flagged.status)
    return version
