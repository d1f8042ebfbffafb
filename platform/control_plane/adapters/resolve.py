"""Resolves the `model` of a request to the digest of a version. Authorisation is part of the query."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from django.db.models import Prefetch, Q, QuerySet

from control_plane.adapters.models import LIVE, Adapter, AdapterVersion, Alias, VersionState
from control_plane.adapters.queries import known_versions, staging_progress
from control_plane.errors import LorikeetError
from control_plane.fleet.base_model import ServedBase, served_base
from control_plane.tenants.models import Tenant

_VERSION = re.compile(r"^v([1-9][0-9]{0,8})$")
LONGEST_NAME = 200


class ModelKind(StrEnum):
    BASE = "base"
    ADAPTER = "adapter"


@dataclass(frozen=True)
class ResolvedModel:
    """What a model name means now. `digest` is "" for the base model."""

    kind: ModelKind
    adapter: Adapter | None
    version: AdapterVersion | None
    digest: str
    display_name: str


@dataclass(frozen=True)
class Canary:
    """A version that answers `percent` of the requests for an alias."""

    model: ResolvedModel
    percent: int

    def takes(self, request_id: str) -> bool:
        """Always the same for one request, wherever it is asked; even over many."""
        number = int.from_bytes(hashlib.blake2b(request_id.encode(), digest_size=8).digest())
        return number % 100 < self.percent


@dataclass(frozen=True)
class ListedModel:
    """One entry of the model lists."""

    id: str
    kind: ModelKind
    description: str
    adapter: str | None
    version: int | None
    aliases: list[str]
    created_at: datetime


class ModelNotFoundError(LorikeetError):
    """No such model for this tenant. Other tenants' names never show in the suggestion."""

    def __init__(self, name: str, near: list[str], *, message: str = "") -> None:
        suggestion = f"Did you mean {' or '.join(near)}? " if near else ""
        super().__init__(
            "model_not_found",
            message or f"There is no model {json.dumps(name[:LONGEST_NAME], ensure_ascii=False)}.",
            f"{suggestion}GET /v1/models lists the models of this key.",
            param="model",
            status=404,
        )


class ModelNotReadyError(LorikeetError):
    """The model exists but no host has it yet, or none could take it."""

    def __init__(self, code: str, message: str, fix: str, *, status: int, retry_after_s: int | None = None) -> None:
        super().__init__(code, message, fix, param="model", status=status)
        self.retry_after_s = retry_after_s


def resolve_model(tenant: Tenant, name: str) -> tuple[ResolvedModel, Canary | None]:
    """`support`, `support@v7`, `support@alias`, or the base model's own name.

    Raises ModelNotFoundError (404) or ModelNotReadyError (503 while staging, 409 if staging failed).
    """
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise ModelNotFoundError(name, [])
    adapter_name, at, pointer = name.partition("@")
    version, alias = _find(tenant, adapter_name, pointer if at else LIVE)
    if version is None:
        return _base_or_error(tenant, name), None
    if version.state != VersionState.READY:
        raise _not_ready(version)
    return _resolved(version, name), _canary(alias, name)


def _resolved(version: AdapterVersion, name: str) -> ResolvedModel:
    return ResolvedModel(ModelKind.ADAPTER, version.adapter, version, version.digest, name)


def _canary(alias: Alias | None, name: str) -> Canary | None:
    """One that cannot be called takes no requests."""
    if alias is None or alias.canary is None or alias.canary.state != VersionState.READY:
        return None
    return Canary(_resolved(alias.canary, name), alias.canary_percent or 0)


def _find(tenant: Tenant, adapter_name: str, pointer: str) -> tuple[AdapterVersion | None, Alias | None]:
    active = Q(adapter__name=adapter_name, adapter__archived_at__isnull=True)
    if number := _VERSION.match(pointer):
        versions = known_versions(tenant).select_related("adapter").defer("report")
        return versions.filter(active, number=int(number[1])).first(), None
    aliases = Alias.objects.for_tenant(tenant).select_related("version__adapter", "canary__adapter")
    alias = aliases.defer("version__report", "canary__report").filter(active, name=pointer).first()
    return (alias.version if alias else None), alias


def _base_or_error(tenant: Tenant, name: str) -> ResolvedModel:
    base = served_base()
    if base is not None and base.name == name:
        return ResolvedModel(ModelKind.BASE, None, None, "", name)
    adapter_name, at, pointer = name.partition("@")
    views = _adapters_of(tenant)
    adapter = next((adapter for adapter in views if adapter.name == adapter_name), None)
    if adapter is None:
        raise ModelNotFoundError(name, _near(name, views, base))
    versions = list(adapter.versions.all())
    if at or not versions:
        raise ModelNotFoundError(
            name,
            _near(name, views, base),
            message=f'The adapter "{adapter_name}" has no version or alias "{pointer}".' if at else "",
        )
    raise _not_ready(next((version for version in versions if version.state != VersionState.ARCHIVED), versions[0]))


def _adapters_of(tenant: Tenant) -> list[Adapter]:
    versions = known_versions(tenant).defer("report").select_related("adapter")
    aliases: QuerySet[Alias] = Alias.objects.for_tenant(tenant)
    active = Adapter.objects.for_tenant(tenant).filter(archived_at__isnull=True)
    return list(active.prefetch_related(Prefetch("versions", versions), Prefetch("aliases", aliases)))


def _near(name: str, adapters: list[Adapter], base: ServedBase | None) -> list[str]:
    known = [adapter.name for adapter in adapters]
    known += [f"{adapter.name}@{alias.name}" for adapter in adapters for alias in adapter.aliases.all()]
    known += [f"{adapter.name}@v{version.number}" for adapter in adapters for version in adapter.versions.all()]
    known += [base.name] if base else []
    return [f'"{close}"' for close in difflib.get_close_matches(name, known, n=2, cutoff=0.6)]


def _not_ready(version: AdapterVersion) -> ModelNotReadyError:
    name = f"{version.adapter.name}@v{version.number}"
    if version.state == VersionState.ARCHIVED:
        return ModelNotReadyError(
            "model_archived", f'The model "{name}" is archived.', "Restore it, or call another version.", status=404
        )
    if version.state == VersionState.FAILED:
        error = version.error or {}
        return ModelNotReadyError(
            "model_failed",
            f'The model "{name}" could not be staged: {error.get("message", "no host took it")}',
            str(error.get("fix") or "Restage it in the console or upload it again."),
            status=409,
        )
    if version.state == VersionState.READY:
        cause = f"names {version.named_base} as its base model, which is not confirmed" if version.asks_for_base else ""
        return ModelNotReadyError(
            "model_not_live",
            f'The adapter "{version.adapter.name}" has no live version: "{name}" {cause or "was not promoted"}.',
            f'Call "{name}", or {"confirm its base" if cause else "promote it"} in the console.',
            status=409,
        )
    return ModelNotReadyError(
        "model_not_ready",
        f'The model "{name}" is not ready yet ({version.state}, {staging_progress(version)} %).',
        "Try again in a few seconds; the console shows its staging live.",
        status=503,
        retry_after_s=2,
    )


def list_models(tenant: Tenant) -> list[ListedModel]:
    """The base model, if it is decided, and every adapter that can be called by its bare name."""
    return [*_listed_base(), *_listed_adapters(tenant)]


def _listed_base() -> list[ListedModel]:
    base = served_base()
    if base is None:
        return []
    text = "The base model without an adapter."
    return [ListedModel(base.name, ModelKind.BASE, text, None, None, [], base.decided_at)]


def _listed_adapters(tenant: Tenant) -> list[ListedModel]:
    listed = []
    for adapter in _adapters_of(tenant):
        aliases = {alias.name: alias.version_id for alias in adapter.aliases.all()}
        live = next((v for v in adapter.versions.all() if v.pk == aliases.get(LIVE)), None)
        if live is not None and live.state == VersionState.READY:
            others = [f"{adapter.name}@{alias}" for alias in aliases if alias != LIVE]
            others += [f"{adapter.name}@v{v.number}" for v in adapter.versions.all() if v.state == VersionState.READY]
            listed.append(
                ListedModel(
                    adapter.name,
                    ModelKind.ADAPTER,
                    adapter.description,
                    adapter.name,
                    live.number,
                    others,
                    adapter.created_at,
                )
            )
    return listed
