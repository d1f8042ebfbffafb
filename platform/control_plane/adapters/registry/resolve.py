"""Resolves the `model` of a request to the digest of a version. Authorisation is part of the query."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from control_plane.adapters.imports.hub_policy import hub_names
from control_plane.adapters.registry.combinations import CombinationError, is_combination, read_combination
from control_plane.adapters.registry.models import LIVE, Adapter, AdapterVersion, Alias, EffectFlag, VersionState
from control_plane.adapters.registry.queries import exact_first, known_versions, staging_progress
from control_plane.adapters.registry.versions import may_go_live
from control_plane.core.errors import LorikeetError
from control_plane.core.http.lists import MAX_ROWS, part_of
from control_plane.fleet.base_models.base_model import ServedBase, ServedBases, served_bases
from control_plane.identity.tenants.models import Tenant
from lora_engine.peft_format import Part, combined_digest

_VERSION = re.compile(r"^v([1-9][0-9]{0,8})$")
# Maximum number of characters of a model's name.
LONGEST_NAME = 200
# Maximum number of names among which an error looks for the nearest ones to suggest.
MAX_COMPARED = 300
_FLAGGED = {
    EffectFlag.OVERFLOWS: "overflows",
    EffectFlag.CHANGES_NOTHING: "changes nothing",
    EffectFlag.DIFFERS: "differs from what it is on the unquantised base",
}


class ModelKind(StrEnum):
    BASE = "base"
    ADAPTER = "adapter"


@dataclass(frozen=True)
class ResolvedModel:
    """The present meaning of a model name. `digest` is "" for the base model.

    For a combination, `parts` are its versions with their weights, `adapter` is the first one's, `version` is None.
    """

    kind: ModelKind
    adapter: Adapter | None
    version: AdapterVersion | None
    digest: str
    display_name: str
    parts: tuple[tuple[AdapterVersion, float], ...] = ()

    @property
    def versions(self) -> tuple[AdapterVersion, ...]:
        """Versions whose content answers; none for the base model."""
        return tuple(version for version, _ in self.parts) or ((self.version,) if self.version else ())

    @property
    def chat_template(self) -> dict[str, Any] | None:
        """Chat template of the adapter, or one that all of a combination share; None for the base model's."""
        digests = {version.chat_template_digest for version in self.versions}
        return self.versions[0].chat_template if len(digests) == 1 else None

    @property
    def adapter_dtype(self) -> str:
        """Setting of the version's dtype; "" for the base model and for combinations, which are never in FP8."""
        return self.version.adapter_dtype if self.version else ""

    @property
    def pinned_name(self) -> str:
        """Name of this content, whatever becomes of the aliases."""
        version = self.version
        return f"{version.adapter.name}@v{version.number}" if version is not None else self.recorded_name

    @property
    def recorded_name(self) -> str:
        """Name in the ledger: for a combination with its versions, which the ledger has nowhere else."""
        return combined_name(self.parts) if self.parts else self.display_name


@dataclass(frozen=True)
class Canary:
    """A version that answers `percent` of the requests for an alias."""

    model: ResolvedModel
    percent: int

    def takes(self, request_id: str) -> bool:
        """Return True for the canary's share of requests.

        The result is the same in every process, and evenly spread.
        """
        number = int.from_bytes(hashlib.blake2b(request_id.encode(), digest_size=8).digest())
        return number % 100 < self.percent


@dataclass(frozen=True)
class ListedModel:
    """An entry of the model lists."""

    id: str
    kind: ModelKind
    description: str
    adapter: str | None
    version: int | None
    aliases: list[str]
    created_at: datetime
    # The base model on which it runs, itself for a base model; None if that is not served any more.
    base: ServedBase | None


class ModelNotFoundError(LorikeetError):
    """A model that the tenant does not have. Suggestions never contain other tenants' names."""

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
    """A model that exists, but that no host has yet, or none could stage."""

    def __init__(self, code: str, message: str, fix: str, *, status: int, retry_after_s: int | None = None) -> None:
        super().__init__(code, message, fix, param="model", status=status)
        self.retry_after_s = retry_after_s


class ModelLoadingError(ModelNotReadyError):
    """A model that is being staged, so that a request may wait for it."""


def resolve_model(tenant: Tenant, name: str) -> tuple[ResolvedModel, Canary | None]:
    """Resolve `support`, `support@v7`, `support@alias`, a base model's name, or a combination such as `a+b@v2:0.5`.

    Raises ModelNotFoundError (404) or ModelNotReadyError (503 while staging, 409 if staging failed).
    """
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise ModelNotFoundError(name, [])
    if is_combination(name) and served_bases().named(name) is None:
        return _combined(tenant, name), None
    adapter_name, at, pointer = name.partition("@")
    version, alias = _find(tenant, adapter_name, pointer if at else LIVE)
    if version is None:
        return _base_or_error(tenant, name), None
    if version.state != VersionState.READY:
        raise not_ready(version)
    return resolved(version, name), _canary(alias, name)


def resolved(version: AdapterVersion, name: str) -> ResolvedModel:
    return ResolvedModel(ModelKind.ADAPTER, version.adapter, version, version.digest, name)


def _combined(tenant: Tenant, name: str) -> ResolvedModel:
    """Resolve each part of a combination by itself; canaries take no part of these requests."""
    parts: list[tuple[AdapterVersion, float]] = []
    for part, weight in read_combination(name):
        version = resolve_model(tenant, part)[0].version
        if version is None:
            raise CombinationError(f'"{part}" is the base model, which every combination contains.', "Leave it out.")
        parts.append((version, weight))
    _require_one_base([version for version, _ in parts])
    if len(combined_name(parts)) > LONGEST_NAME:
        raise CombinationError("The names of the adapters are too long together.", "Combine fewer of them.")
    digest = combined_digest(Part(version.digest, weight) for version, weight in parts)
    return ResolvedModel(ModelKind.ADAPTER, parts[0][0].adapter, None, digest, name, tuple(parts))


def _require_one_base(versions: list[AdapterVersion]) -> None:
    bases = served_bases()
    of_base = {bases.for_adapters_of(version.base_digest): version for version in versions}
    if len(of_base) > 1:
        listed = ", ".join(f'"{version.adapter.name}" of {version.base_model}' for version in of_base.values())
        raise CombinationError(
            f"The adapters belong to different base models: {listed}.", "Combine adapters of one base model."
        )


def combined_name(parts: Iterable[tuple[AdapterVersion, float]]) -> str:
    return "+".join(f"{version.adapter.name}@v{version.number}:{weight:g}" for version, weight in parts)


def _canary(alias: Alias | None, name: str) -> Canary | None:
    """Return the alias's canary, unless it cannot be called."""
    if alias is None or alias.canary is None or alias.canary.state != VersionState.READY:
        return None
    return Canary(resolved(alias.canary, name), alias.canary_percent or 0)


def _find(tenant: Tenant, adapter_name: str, pointer: str) -> tuple[AdapterVersion | None, Alias | None]:
    active = Q(adapter__name=adapter_name, adapter__archived_at__isnull=True)
    if number := _VERSION.match(pointer):
        versions = known_versions(tenant).select_related("adapter").defer("report")
        return versions.filter(active, number=int(number[1])).first(), None
    aliases = Alias.objects.for_tenant(tenant).select_related("version__adapter", "canary__adapter")
    alias = aliases.defer("version__report", "canary__report").filter(active, name=pointer).first()
    return (alias.version if alias else None), alias


def _base_or_error(tenant: Tenant, name: str) -> ResolvedModel:
    bases = served_bases()
    if bases.named(name) is not None:
        return ResolvedModel(ModelKind.BASE, None, None, "", name)
    adapter_name, at, pointer = name.partition("@")
    adapter = _active(tenant).filter(name=adapter_name).first()
    versions = list(_versions_of(tenant, [adapter.pk])) if adapter else []
    if adapter is None:
        raise ModelNotFoundError(name, _near(tenant, name, bases))
    if at or not versions:
        raise ModelNotFoundError(
            name,
            _near(tenant, name, bases),
            message=f'The adapter "{adapter_name}" has no version or alias "{pointer}".' if at else "",
        )
    raise not_ready(next((version for version in versions if version.state != VersionState.ARCHIVED), versions[0]))


def _active(tenant: Tenant) -> QuerySet[Adapter]:
    return Adapter.objects.for_tenant(tenant).filter(archived_at__isnull=True)


def _versions_of(tenant: Tenant, adapters: list[UUID]) -> QuerySet[AdapterVersion]:
    return known_versions(tenant).filter(adapter__in=adapters).defer("report").select_related("adapter")


def _near(tenant: Tenant, name: str, bases: ServedBases) -> list[str]:
    adapter_name, at, _ = name.partition("@")
    names = _names_like(tenant, adapter_name)
    known = [*names, *(base.name for base in bases)]
    if at:
        near = [names[close] for close in difflib.get_close_matches(adapter_name, names, n=2, cutoff=0.6)]
        aliases = Alias.objects.for_tenant(tenant).filter(adapter__in=near).select_related("adapter")
        known += [f"{alias.adapter.name}@{alias.name}" for alias in aliases]
        known += [f"{version.adapter.name}@v{version.number}" for version in _versions_of(tenant, near)]
    return [f'"{close}"' for close in difflib.get_close_matches(name, known, n=2, cutoff=0.6)]


def _names_like(tenant: Tenant, name: str) -> dict[str, UUID]:
    """Return a few adapters by name to compare with: with many adapters, those that begin alike."""
    rows = _active(tenant).order_by("name").values_list("name", "pk")
    few = dict(rows[: MAX_COMPARED + 1])
    return few if len(few) <= MAX_COMPARED else dict(rows.filter(name__startswith=name[:2])[:MAX_COMPARED])


def not_ready(version: AdapterVersion) -> ModelNotReadyError:
    name = f"{version.adapter.name}@v{version.number}"
    if version.state == VersionState.ARCHIVED:
        return ModelNotReadyError(
            "model_archived", f'The model "{name}" is archived.', "Restore it, or use another version.", status=404
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
        return _not_live(version, name)
    return ModelNotReadyError(
        "model_not_ready",
        f'The model "{name}" is not ready yet ({version.state}, {staging_progress(version)} %).',
        "Try again in a few seconds; the console shows its staging live.",
        status=503,
        retry_after_s=2,
    )


def _not_live(version: AdapterVersion, name: str) -> ModelNotReadyError:
    """Return the error for a ready version of an adapter without a live one."""
    if version.effect is None and may_go_live(version):
        return ModelLoadingError(
            "model_not_ready",
            f'A host is trying the model "{name}"; then it becomes live.',
            f'Try again in a few seconds, or use "{name}".',
            status=503,
            retry_after_s=2,
        )
    cause, way = "was not promoted", "promote it"
    if version.asks_for_base:
        cause = f"names {version.named_base} as its base model, which is not confirmed"
        way = "confirm its base"
    elif version.flag is not None and version.asks_for_effect:
        cause = f"{_FLAGGED[version.flag]}, and nobody has confirmed that it may be live"
        way = "check its effect and confirm it"
    return ModelNotReadyError(
        "model_not_live",
        f'The adapter "{version.adapter.name}" has no live version: "{name}" {cause}.',
        f'Use "{name}", or {way} in the console.',
        status=409,
    )


def list_models(tenant: Tenant) -> list[ListedModel]:
    """Return the base models and every adapter that can be called by its bare name."""
    return find_models(tenant)[0]


def find_models(
    tenant: Tenant, search: str = "", offset: int = 0, limit: int | None = None
) -> tuple[list[ListedModel], int]:
    """Return a part of the models whose name or description contains `search`, and the number of all of them."""
    bases = served_bases()
    base_entries = [model for model in map(_listed_base, bases) if search.lower() in model.id.lower()]
    adapters = _active(tenant).filter(aliases__name=LIVE, aliases__version__state=VersionState.READY)
    if search:
        adapters = adapters.filter(Q(name__icontains=search) | Q(description__icontains=search))
        adapters = adapters.order_by(exact_first(search), "name")
    page = part_of(base_entries, offset, limit)
    left = None if limit is None else limit - len(page)
    return [
        *page,
        *_listed_adapters(tenant, part_of(adapters, max(0, offset - len(base_entries)), left), bases),
    ], len(base_entries) + adapters.count()


def _listed_base(base: ServedBase) -> ListedModel:
    text = "The base model without an adapter."
    return ListedModel(base.name, ModelKind.BASE, text, None, None, [], base.decided_at, base)


def _listed_adapters(tenant: Tenant, adapters: QuerySet[Adapter], bases: ServedBases) -> list[ListedModel]:
    """Read columns instead of rows: a tenant may have ten thousand adapters, and clients request all of them."""
    of_version = ("aliases__version__number", "aliases__version__base_digest")
    rows = list(adapters.values_list("pk", "name", "description", "created_at", *of_version))
    # A slice cannot be a subquery of itself, and the ids of all adapters would be too many parameters.
    mine: Any = [row[0] for row in rows] if len(rows) <= MAX_ROWS else adapters.order_by().values("pk")
    others: defaultdict[UUID, list[str]] = defaultdict(list)
    aliases = Alias.objects.for_tenant(tenant).filter(adapter__in=mine).exclude(name=LIVE)
    for adapter_id, name in aliases.order_by("name").values_list("adapter_id", "name"):
        others[adapter_id].append(name)
    ready = AdapterVersion.objects.for_tenant(tenant).filter(adapter__in=mine, state=VersionState.READY)
    for adapter_id, number in ready.order_by("-number").values_list("adapter_id", "number"):
        others[adapter_id].append(f"v{number}")
    of_hub = hub_names(tenant, mine)
    return [
        ListedModel(
            name,
            ModelKind.ADAPTER,
            text,
            name,
            live,
            [*(f"{name}@{other}" for other in others[pk]), *of_hub.get(pk, [])],
            created_at,
            bases.for_adapters_of(base_digest),
        )
        for pk, name, text, created_at, live, base_digest in rows
    ]
