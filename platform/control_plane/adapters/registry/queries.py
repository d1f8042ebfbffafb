"""Reading adapters. Every function takes the tenant, and every query names it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import models
from django.db.models import Case, OuterRef, Prefetch, Q, Subquery, When
from django.db.models.functions import Coalesce

from control_plane.adapters.registry.models import (
    LIVE,
    NAME_FORM,
    OUT_OF_USE,
    Adapter,
    AdapterVersion,
    Alias,
    VersionState,
)
from control_plane.adapters.uploads.models import Upload
from control_plane.core.errors import NotFoundError
from control_plane.core.http.lists import part_of
from control_plane.identity.tenants.models import Tenant


class AdapterStatus(models.TextChoices):
    """An adapter's state in one word: the state of its live version, else of its newest."""

    EMPTY = "empty"
    VALIDATED = "validated"
    STAGING = "staging"
    READY = "ready"
    FAILED = "failed"
    ARCHIVED = "archived"


@dataclass(frozen=True)
class AdapterWithVersions:
    """An adapter with its figures in lists and pages. Field names are those of the JSON."""

    adapter: Adapter
    versions: list[AdapterVersion]
    aliases: list[Alias]

    @property
    def name(self) -> str:
        return self.adapter.name

    @property
    def description(self) -> str:
        return self.adapter.description

    @property
    def created_at(self) -> datetime:
        return self.adapter.created_at

    @property
    def live(self) -> AdapterVersion | None:
        return next((alias.version for alias in self.aliases if alias.name == LIVE), None)

    @property
    def live_version(self) -> int | None:
        return self.live.number if self.live else None

    @property
    def versions_count(self) -> int:
        return len(self.versions)

    @property
    def shown(self) -> AdapterVersion | None:
        in_use = (version for version in self.versions if version.state != VersionState.ARCHIVED)
        return self.live or next(in_use, None) or (self.versions[0] if self.versions else None)

    @property
    def status(self) -> AdapterStatus:
        return AdapterStatus(self.shown.state) if self.shown else AdapterStatus.EMPTY

    @property
    def rank(self) -> int | None:
        return self.shown.rank if self.shown else None

    @property
    def targets(self) -> list[str]:
        return list(self.shown.targets) if self.shown else []

    @property
    def bytes(self) -> int | None:
        return self.shown.bytes if self.shown else None

    @property
    def base_model(self) -> str | None:
        return self.shown.base_model if self.shown else None


class AdapterNotFoundError(NotFoundError):
    def __init__(self, name: str) -> None:
        super().__init__(
            f'There is no adapter "{name}" in this tenant.',
            "Check the name. GET adapters lists the adapters.",
            code="adapter_not_found",
            param="name",
        )


class VersionNotFoundError(NotFoundError):
    def __init__(self, name: str, number: int) -> None:
        super().__init__(
            f'The adapter "{name}" has no version {number}.',
            f"GET adapters/{name} lists its versions.",
            code="version_not_found",
            param="number",
        )


class UploadNotFoundError(NotFoundError):
    def __init__(self, upload_id: UUID) -> None:
        super().__init__(
            f"There is no upload {upload_id} in this tenant.",
            "Use the id that POST uploads answered with.",
            code="upload_not_found",
            param="id",
        )


class ArchivedNotFoundError(NotFoundError):
    def __init__(self, adapter_id: UUID) -> None:
        super().__init__(
            f"There is no archived adapter {adapter_id} in this tenant.",
            "GET archived-adapters lists what can be restored.",
            code="archived_adapter_not_found",
            param="id",
        )


def known_versions(tenant: Tenant) -> models.QuerySet[AdapterVersion]:
    """Return all versions except deleted ones, which only the ledger refers to."""
    return AdapterVersion.objects.for_tenant(tenant).exclude(state=VersionState.DELETED)


def _with_versions(tenant: Tenant) -> models.QuerySet[Adapter]:
    versions = known_versions(tenant).defer("report", "chat_template").select_related("created_by")
    aliases: models.QuerySet[Alias] = Alias.objects.for_tenant(tenant).select_related("version", "previous", "canary")
    return Adapter.objects.for_tenant(tenant).prefetch_related(
        Prefetch("versions", versions), Prefetch("aliases", aliases)
    )


def _active(tenant: Tenant) -> models.QuerySet[Adapter]:
    return _with_versions(tenant).filter(archived_at__isnull=True)


def _view(adapter: Adapter) -> AdapterWithVersions:
    return AdapterWithVersions(adapter, list(adapter.versions.all()), list(adapter.aliases.all()))


class AdapterSort(models.TextChoices):
    """The columns by which a list of adapters can be sorted; a minus before one reverses the order."""

    NAME = "name"
    RANK = "rank"
    BYTES = "bytes"
    CREATED_AT = "created_at"


# The states that a filter by the status "staging" matches.
_MOVING = (VersionState.VALIDATED, VersionState.STAGING)


def list_adapters(
    tenant: Tenant,
    search: str = "",
    offset: int = 0,
    limit: int | None = None,
    status: str = "",
    sort: str = AdapterSort.NAME,
) -> tuple[list[AdapterWithVersions], int]:
    """Return a part of the active adapters, in four queries whatever their number, and the number of all."""
    adapters = _with_shown(_active(tenant))
    if search:
        adapters = adapters.filter(_named(search))
    if status:
        adapters = adapters.filter(Q(_shown_state__in=_MOVING if status == AdapterStatus.STAGING else (status,)))
    ordered = _sorted(adapters, sort)
    if search and sort == AdapterSort.NAME:
        ordered = adapters.order_by(exact_first(search), "name")
    return [_view(adapter) for adapter in part_of(ordered, offset, limit)], adapters.count()


def _named(search: str) -> Q:
    return Q(name__icontains=search) | Q(description__icontains=search)


def _sorted(adapters: models.QuerySet[Adapter], sort: str) -> models.QuerySet[Adapter]:
    column, down = sort.removeprefix("-"), sort.startswith("-")
    by = models.F(column if column in (AdapterSort.NAME, AdapterSort.CREATED_AT) else f"_shown_{column}")
    # Adapters without a version come last in both orders.
    return adapters.order_by(by.desc(nulls_last=True) if down else by.asc(nulls_last=True), "name")


def exact_first(search: str) -> Case:
    """Return an order in which an exact match of the name comes before names that contain it."""
    return Case(When(name=search, then=0), default=1)


def _with_shown(adapters: models.QuerySet[Adapter]) -> models.QuerySet[Adapter]:
    """Add the columns of `AdapterWithVersions.shown`, by which the database sorts and filters."""
    newest = AdapterVersion.objects.filter(adapter=OuterRef("pk")).order_by("-number")
    live = Alias.objects.filter(adapter=OuterRef("pk"), name=LIVE).values("version_id")[:1]
    shown = Coalesce(
        Subquery(live),
        Subquery(newest.exclude(state__in=OUT_OF_USE).values("pk")[:1]),
        Subquery(newest.exclude(state=VersionState.DELETED).values("pk")[:1]),
    )
    of_shown = AdapterVersion.objects.filter(pk=OuterRef("_shown"))
    columns = {f"_shown_{name}": Subquery(of_shown.values(name)[:1]) for name in ("state", "rank", "bytes")}
    return adapters.alias(_shown=shown).alias(**columns)


class ArchivedSort(models.TextChoices):
    """The columns by which a list of archived adapters can be sorted; a minus before one reverses the order."""

    NAME = "name"
    ARCHIVED_AT = "archived_at"


LATEST_ARCHIVED = f"-{ArchivedSort.ARCHIVED_AT.value}"


def list_archived(
    tenant: Tenant, search: str = "", offset: int = 0, limit: int | None = None, sort: str = LATEST_ARCHIVED
) -> tuple[list[AdapterWithVersions], int]:
    """Return a part of the adapters that can be restored, and the number of all. Several may share a name."""
    adapters = _with_versions(tenant).filter(archived_at__isnull=False, deleted_at__isnull=True)
    if search:
        adapters = adapters.filter(_named(search))
    ordered = adapters.order_by(sort, "pk")
    return [_view(adapter) for adapter in part_of(ordered, offset, limit)], adapters.count()


def get_adapter(tenant: Tenant, name: str) -> AdapterWithVersions:
    """Return an active adapter by name. Raises AdapterNotFoundError."""
    adapter = _active(tenant).filter(name=name).first() if NAME_FORM.match(name) else None
    if adapter is None:
        raise AdapterNotFoundError(name)
    return _view(adapter)


def get_version(tenant: Tenant, name: str, number: int) -> AdapterVersion:
    """Return a version with its adapter, aliases and placements.

    Raises AdapterNotFoundError or VersionNotFoundError.
    """
    adapter = get_adapter(tenant, name).adapter
    version = (
        known_versions(tenant)
        .select_related("adapter", "created_by")
        .prefetch_related(
            Prefetch("aliases", Alias.objects.for_tenant(tenant)),
            "placements__host",
        )
        .filter(adapter=adapter, number=number)
        .first()
    )
    if version is None:
        raise VersionNotFoundError(name, number)
    return version


def get_upload(tenant: Tenant, upload_id: UUID) -> Upload:
    """Return an upload of the tenant. Raises UploadNotFoundError."""
    upload = _uploads(tenant).filter(pk=upload_id).first()
    if upload is None:
        raise UploadNotFoundError(upload_id)
    return upload


def find_uploads(tenant: Tenant, search: str) -> models.QuerySet[Upload]:
    """Return a tenant's uploads, newest first; `search` is a part of the adapter's name."""
    rows = _uploads(tenant)
    return rows.filter(adapter_name__icontains=search) if search else rows


def _uploads(tenant: Tenant) -> models.QuerySet[Upload]:
    return Upload.objects.for_tenant(tenant).select_related("version", "created_by")


def count_active(tenant: Tenant) -> int:
    return Adapter.objects.for_tenant(tenant).filter(archived_at__isnull=True).count()


def count_adapters(tenant: Tenant) -> dict[str, int]:
    """Return `{"total", "ready"}`: ready adapters can be called by their bare name.

    An adapter whose versions are all archived counts as archived.
    """
    in_use = AdapterVersion.objects.for_tenant(tenant).exclude(state__in=OUT_OF_USE)
    active = Adapter.objects.for_tenant(tenant).filter(archived_at__isnull=True, pk__in=in_use.values("adapter"))
    ready = active.filter(aliases__name=LIVE, aliases__version__state=VersionState.READY)
    return {"total": active.count(), "ready": ready.count()}


def stored_bytes(tenant: Tenant) -> int:
    """Return the bytes that count against the tenant's limit. Content shared by several versions counts once."""
    return _bytes_of(AdapterVersion.objects.for_tenant(tenant).exclude(state__in=OUT_OF_USE))


def archived_bytes(tenant: Tenant) -> int:
    """Return the bytes that are stored only for a possible restore."""
    in_use = AdapterVersion.objects.for_tenant(tenant).exclude(state__in=OUT_OF_USE)
    archived = AdapterVersion.objects.for_tenant(tenant).filter(state=VersionState.ARCHIVED)
    return _bytes_of(archived.exclude(digest__in=in_use.order_by().values("digest")))


def bytes_by_adapter(tenant: Tenant) -> models.QuerySet[AdapterVersion, Any]:
    """Return name, versions and bytes of each active adapter, the largest first.

    Content that two adapters share counts for each of them.
    """
    rows = AdapterVersion.objects.for_tenant(tenant).exclude(state__in=OUT_OF_USE).order_by()
    grouped = rows.values(name=models.F("adapter__name"))
    return grouped.annotate(versions=models.Count("pk"), all_bytes=models.Sum("bytes")).order_by("-all_bytes", "name")


def _bytes_of(versions: models.QuerySet[AdapterVersion]) -> int:
    contents = versions.order_by().values("digest").annotate(once=models.Max("bytes"))
    return contents.aggregate(sum=models.Sum("once"))["sum"] or 0


def staging_progress(version: AdapterVersion) -> int:
    """Return the percentage of bytes staged on the host that is furthest ahead."""
    shares: list[Any] = [
        100 * placement.bytes_done // placement.bytes_total if placement.bytes_total else 0
        for placement in version.placements.all()
    ]
    return int(max(shares, default=0))
