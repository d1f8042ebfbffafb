"""Actions that write placements, each with its live events after commit."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Count, F, Q, QuerySet, Sum
from django.utils import timezone

from control_plane.adapters.registry.locks import lock_version
from control_plane.adapters.registry.models import (
    LIVE,
    OUT_OF_USE,
    AdapterVersion,
    AgreementOutcome,
    DtypeOutcome,
    VersionState,
)
from control_plane.adapters.registry.versions import (
    VersionArchivedError,
    go_live_untried,
    label_of,
    mark_version_failed,
    mark_version_ready,
    mark_version_staging,
    tell_adapter,
)
from control_plane.core.config import current
from control_plane.core.errors import LorikeetError, NotFoundError
from control_plane.core.jobs import claims, clocks, fair_queue
from control_plane.core.writes import announce, enqueue
from control_plane.fleet.base_models.base_model import (
    ServedBases,
    described_hosts,
    served_bases,
    serving_hosts,
    short,
)
from control_plane.fleet.hosts.models import EngineHost, HostService, HostState, StagingPhase
from control_plane.fleet.placements.models import Placement
from control_plane.fleet.placements.payloads import dtype_report_json, staging_json
from control_plane.fleet.transport.errors import HostError
from control_plane.identity.access.actor import Actor
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit import actions as audit
from lora_engine.wire import engine_pb2 as pb

# Maximum number of failed placements that one reconciliation stages again on a host.
MAX_RETRIED = 50
# Maximum number of leftover adapters that one reconciliation drops from a host.
MAX_DROPPED = 100
MAX_RETRY_PAUSE = timedelta(hours=1)
PLACED_STATES = (VersionState.VALIDATED, VersionState.STAGING, VersionState.READY)
# Concurrent stagings on one host: a host that hangs must not occupy every slot.
HOST_STAGINGS = 3
# Columns that a worker's report writes. The claim is not among them: another thread renews it at the same time.
REPORTED = (
    "phase",
    "bytes_done",
    "bytes_total",
    "bytes_per_second",
    "pool_pages",
    "error",
    "attempts",
    "next_attempt_at",
    "failures",
    "failed_boot_id",
    "boot_id",
    "updated_at",
)
# Maximum number of staging tasks that one change enqueues. Each task enqueues the next one after it has staged
# something.
MAX_SLOTS = 100


class OtherBaseModelError(LorikeetError):
    def __init__(self, version: AdapterVersion, bases: ServedBases) -> None:
        error = of_other_base(version, bases)
        super().__init__(error["code"], error["message"], error["fix"], param="number", status=409)


class NoHostsError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "no_hosts",
            "No engine host serves its base model, so there is nowhere to stage the version.",
            "Name the hosts in LORIKEET_ENGINE_HOSTS and start the engine; the hosts page shows those in quarantine.",
            status=409,
        )


def restage_version(*, acting: Principal, version: AdapterVersion) -> AdapterVersion:
    """Bring the version to every active host again. A ready version stays callable meanwhile.

    Raises NoHostsError, OtherBaseModelError or VersionArchivedError (409).
    """
    bases = served_bases()
    with transaction.atomic():
        version = mark_version_staging(lock_version(version))
        if version.state in OUT_OF_USE:
            raise VersionArchivedError(version)
        if bases and bases.for_adapters_of(version.base_digest) is None:
            raise OtherBaseModelError(version, bases)
        audit.record(acting.actor, "version.restage", version, tenant=acting.tenant, label=label_of(version))
        if not stage_again(version):
            raise NoHostsError
        tell_adapter(version.adapter)
    return version


def set_adapter_dtype(*, acting: Principal, version: AdapterVersion, dtype: str) -> AdapterVersion:
    """Set the dtype in which hosts with adapters in FP8 serve a version, and stage it again in that dtype.

    Requests that run keep the dtype with which they began. Raises VersionArchivedError (409).
    """
    with transaction.atomic():
        version = lock_version(version)
        if version.state in OUT_OF_USE:
            raise VersionArchivedError(version)
        before, version.adapter_dtype = version.adapter_dtype, dtype
        if before == dtype:
            return version
        version.save(update_fields=["adapter_dtype"])
        facts = {"before": before, "adapter_dtype": dtype}
        audit.record(acting.actor, "version.set_dtype", version, tenant=acting.tenant, label=label_of(version), **facts)
        if version.state in PLACED_STATES:
            stage_again(version)
        for placement in version.placements.select_related("host").filter(pinned=True):
            enqueue("placements.apply_pins", placement.host.name)
        tell_adapter(version.adapter)
    return version


def retry_placement(*, actor: Actor, placement_id: UUID) -> Placement:
    """Stage a placement again now, without its pause after a failure. One that a worker has claimed is left alone.

    Raises NotFoundError (404), VersionArchivedError (409).
    """
    with transaction.atomic():
        placement = Placement.objects.select_related("version").filter(pk=placement_id).first()
        if placement is None:
            raise NotFoundError(
                "There is no such placement any more.",
                "GET /api/operator/staging lists what is being staged.",
                code="placement_not_found",
                param="id",
            )
        version = lock_version(placement.version)
        if version.state in OUT_OF_USE:
            raise VersionArchivedError(version)
        again = _requeue(version.placements.filter(claims.unclaimed(), pk=placement_id).exclude(ready_here()))
        mark_version_staging(version)
        audit.record(actor, "version.restage", version, tenant=version.tenant, label=label_of(version))
        _stage_after_commit(again)
        tell_adapter(version.adapter)
    return Placement.objects.get(pk=placement_id)


def place_version(version: AdapterVersion, hosts: list[EngineHost] | None = None, **_signal: Any) -> list[Placement]:
    """Place ``version`` on these hosts, or on hosts of its base model, and stage it where it is not ready.

    Placed everywhere, it goes to every such host. Placed by demand, it goes to the hosts that have it, or else to the
    one with the fewest bytes. Offline hosts are staged by the reconciler when they return. Returns the placements to be
    staged.
    """
    if hosts is None:
        base = served_bases().for_adapters_of(version.base_digest)
        if base is None:
            return []  # `settle_base_models` marks the version failed
        hosts = serving_hosts(base)
        if current().placement != "everywhere":
            hosts = _homes(version, hosts)
    with transaction.atomic():
        version = lock_version(version)
        if version.state in OUT_OF_USE:  # archived since the caller read it
            return []
        for host in hosts:
            Placement.objects.get_or_create(version=version, host=host)
        # A placement that a worker has claimed is left to that worker.
        idle = version.placements.filter(claims.unclaimed(), host__in=hosts)
        placements = _requeue(idle.exclude(ready_here()))
        mark_version_staging(version)
        _stage_after_commit(placements)
    return placements


def _homes(version: AdapterVersion, hosts: list[EngineHost]) -> list[EngineHost]:
    """Return the hosts for a version until the plan by demand is made: those that have it, else one."""
    has = set(version.placements.values_list("host", flat=True))
    if present := [host for host in hosts if host.pk in has]:
        return present
    sizes = Placement.objects.filter(host__in=hosts).order_by().values_list("host").annotate(Sum("version__bytes"))
    bytes_on = dict(sizes)
    return sorted(hosts, key=lambda host: (host.state != HostState.ONLINE, bytes_on.get(host.pk, 0), host.name))[:1]


def stage_again(version: AdapterVersion) -> list[Placement]:
    """Stage a version again everywhere, also where it is ready: there it stays callable."""
    with transaction.atomic():
        version = lock_version(version)
        _requeue(version.placements.all())
        return place_version(version)


def withdraw_version(version: AdapterVersion, **_signal: Any) -> None:
    """Remove all placements of a version; hosts drop its content once no version of any tenant has it."""
    with transaction.atomic():
        hosts = [placement.host.name for placement in version.placements.select_related("host")]
        version.placements.all().delete()
        for host in hosts:
            enqueue("placements.drop_unwanted", host, version.digest)


def requeue_after_boot(host: EngineHost) -> int:
    """Stage again what a restarted engine has lost from memory. Returns the number of placements."""
    with transaction.atomic():
        # Placements that are not ready wait for a worker, who sees the new process itself.
        ready = Placement.objects.filter(host=host, phase=StagingPhase.READY, version__state__in=PLACED_STATES)
        placements = _requeue(ready.exclude(boot_id=host.boot_id))
        _stage_after_commit(placements)
    return len(placements)


def requeue_unobserved(host: EngineHost, grace: timedelta) -> int:
    """Stage again what is marked ready but absent from the host's report. Returns the number of placements."""
    if host.adapters_boot_id != host.boot_id:
        return 0  # this engine has not reported yet
    resident = host.adapters.values("digest")
    now = clocks.database_time()
    settled = Q(updated_at__lt=now - grace) | Q(updated_at__gt=now + grace)
    with transaction.atomic():
        ready = Placement.objects.filter(host=host, phase=StagingPhase.READY, boot_id=host.boot_id)
        missing = _requeue(ready.filter(settled).exclude(version__digest__in=resident), boot_id="")
        _stage_after_commit(missing)
    return len(missing)


def drop_leftovers(host: EngineHost) -> int:
    """Have the host drop adapters that it reports and that no version wants there: the task of a withdrawal may have
    been lost, or the host was away. Returns the number of adapters."""
    if host.adapters_boot_id != host.boot_id:
        return 0  # this engine has not reported yet
    resident = set(host.adapters.values_list("digest", flat=True))
    wanted = Placement.objects.filter(host=host, version__digest__in=resident).values_list("version__digest", flat=True)
    leftovers = sorted(resident.difference(wanted))[:MAX_DROPPED]
    for digest in leftovers:
        enqueue("placements.drop_unwanted", host.name, digest)
    return len(leftovers)


def requeue_failed(host: EngineHost, now: datetime | None = None) -> int:
    """Stage failed placements again once their pause is over or the host restarted. Returns their number.

    Nothing reports that the cause of a failure is gone, so they are retried. The version keeps its state until it is
    ready: its owner gets no event for a retry.
    """
    over = clocks.due("next_attempt_at", now or clocks.database_time(), MAX_RETRY_PAUSE)
    due = Q(next_attempt_at=None) | over | ~Q(failed_boot_id=host.boot_id)
    states = [*PLACED_STATES, VersionState.FAILED]
    with transaction.atomic():
        failed = Placement.objects.filter(due, host=host, phase=StagingPhase.FAILED, version__state__in=states)
        first = failed.order_by(F("next_attempt_at").asc(nulls_first=True)).values_list("pk", flat=True)[:MAX_RETRIED]
        placements = _requeue(Placement.objects.filter(pk__in=list(first), phase=StagingPhase.FAILED))
        _stage_after_commit(placements)
    return len(placements)


def retry_pause(failures: int) -> timedelta:
    """Return the pause after so many failures in a row: 1, 2, 4, ... minutes, at most an hour."""
    return min(MAX_RETRY_PAUSE, timedelta(minutes=1 << min(failures - 1, 10)))


def settle_base_models(bases: ServedBases) -> int:
    """Remove placements on hosts of another base model, and mark versions of no served base model failed.

    Returns the number of these versions. They are placed like new ones when their base model is served again.
    """
    foreign = [host for host in described_hosts() if not bases.is_served_by(host.description)]
    Placement.objects.filter(host__in=foreign).delete()
    if not bases:
        return 0
    Placement.objects.exclude(version__base_digest__in=bases.adapters_of).delete()
    for base in bases:
        hosts = [host for host in described_hosts() if base.is_served_by(host.description)]
        Placement.objects.filter(host__in=hosts).exclude(version__base_digest__in=base.adapters_of).delete()
    others = AdapterVersion.objects.filter(state__in=PLACED_STATES).exclude(base_digest__in=bases.adapters_of)
    versions = list(others.select_related("tenant"))
    for version in versions:
        mark_version_failed(version, of_other_base(version, bases), ready_too=True)
    return len(versions)


def follow_renamed(bases: ServedBases) -> None:
    """Write the current names of base models into their versions."""
    for base in bases:
        AdapterVersion.objects.filter(base_digest=base.digest).exclude(base_model=base.name).update(
            base_model=base.name
        )


def of_other_base(version: AdapterVersion, bases: ServedBases) -> dict[str, str]:
    return {
        "code": "other_base_model",
        "message": f"It was trained for the base model {version.base_model} ({short(version.base_digest)}); "
        f"this installation serves {bases} now.",
        "fix": f"Upload an adapter that was trained for {' or '.join(base.name for base in bases)}. This one becomes "
        "usable again when its base model is served again.",
    }


def claim_next() -> Placement | None:
    """Claim a placement for staging, chosen fairly among tenants. Returns None if none can be staged now.

    Reports of a worker that lost its claim, or whose placement was queued again, are ignored.
    """
    queue = fair_queue.FairQueue("staging", _waiting(), _staging(), current().tenant_stagings, "version__tenant_id")
    if not queue.is_open():
        return None
    with transaction.atomic():
        placement = queue.choose()
        if placement is None:
            return None
        # A placement with an expired claim was left by a worker that died: its attempt is continued.
        placement.attempts += placement.claim is None
        placement.error = None
        placement.save(update_fields=["attempts", "error", "updated_at"])
        claims.take(placement)
    return placement


def _waiting() -> QuerySet[Placement]:
    """Return the unclaimed placements that are due, on hosts that are online."""
    wanted = Placement.objects.filter(version__state__in=[*PLACED_STATES, VersionState.FAILED])
    open_ = wanted.exclude(phase__in=[StagingPhase.READY, StagingPhase.FAILED])
    over = clocks.due("next_attempt_at", clocks.database_time(), MAX_RETRY_PAUSE)
    due = open_.filter(Q(next_attempt_at=None) | over, claims.unclaimed())
    busy = _staging().order_by().values("host").annotate(count=Count("pk")).filter(count__gte=HOST_STAGINGS)
    serving = due.filter(host__active=True, host__state=HostState.ONLINE, host__service=HostService.SERVING)
    here = serving.exclude(host__in=busy.values("host"))
    return here.select_related("host", "version__adapter", "version__tenant").order_by("updated_at")


def _staging() -> QuerySet[Placement]:
    return Placement.objects.filter(claims.claimed())


def record_stage_event(
    placement: Placement, event: pb.StageEvent, boot_id: str, bytes_per_second: float, *, to_be_tried: bool = False
) -> None:
    """Store a phase or its progress and send it to the tenant's consoles. READY also makes the version ready; with
    ``to_be_tried`` it does not go live yet."""
    with transaction.atomic():
        if event.phase == pb.StageEvent.READY:
            lock_version(placement.version)  # before its placement, in the order of `place_version`
        if _superseded(placement):
            return
        placement.phase = StagingPhase(pb.StageEvent.Phase.Name(event.phase).lower())
        placement.bytes_done, placement.bytes_total = event.bytes_done, event.bytes_total
        placement.bytes_per_second = round(bytes_per_second)
        if placement.phase == StagingPhase.READY:
            placement.boot_id, placement.pool_pages = boot_id, event.pool_pages
            placement.error, placement.attempts = None, 0
            placement.failures, placement.failed_boot_id, placement.next_attempt_at = 0, "", None
            claims.end(placement)
        placement.save(update_fields=REPORTED)
        if placement.phase == StagingPhase.READY:
            placement.version = mark_version_ready(placement.version, to_be_tried=to_be_tried)
        _tell(placement, bytes_per_second)


def record_dtype(placement: Placement, report: pb.DtypeReport) -> None:
    """Store in which dtype the host serves a ready placement, and its comparison."""
    with transaction.atomic():
        row = Placement.objects.select_for_update().filter(pk=placement.pk, boot_id=placement.boot_id).first()
        if row is None or row.phase != StagingPhase.READY:
            return  # staged again meanwhile, or withdrawn
        row.dtype, row.dtype_report = report.dtype[:16], dtype_report_json(report)
        row.pool_pages = report.pool_pages or row.pool_pages
        row.save(update_fields=["dtype", "dtype_report", "pool_pages"])
        row.version, row.host = placement.version, placement.host
        _tell(row, 0.0)


def record_stage_failure(placement: Placement, failure: HostError, *, pause_s: float | None) -> None:
    """Store why an attempt failed. `pause_s` is the time to the next attempt, None after the last one.

    The version fails when no placement of it on an active host is left that has not failed.
    """
    final = pause_s is None
    error = {"code": failure.code, "message": failure.message, "fix": failure.fix}
    with transaction.atomic():
        lock_version(placement.version)
        if _superseded(placement):
            return
        placement.phase = StagingPhase.FAILED if final else StagingPhase.QUEUED
        placement.error = error
        placement.bytes_per_second = 0
        if final:
            placement.failures += 1
            placement.failed_boot_id = placement.host.boot_id
        pause = timedelta(seconds=pause_s) if pause_s is not None else retry_pause(placement.failures)
        placement.next_attempt_at = clocks.database_time() + pause
        placement.save(update_fields=REPORTED)
        claims.end(placement)
        hopeful = placement.version.placements.filter(host__active=True).exclude(phase=StagingPhase.FAILED)
        if final and not hopeful.exists():
            placement.version = mark_version_failed(placement.version, error)
        _tell(placement, 0.0)


def ready_here() -> Q:
    """Return the condition for placements that are ready on the engine process that runs now."""
    return Q(phase=StagingPhase.READY, boot_id=F("host__boot_id"))


def callable_here() -> Q:
    """Return the condition for placements that were ready on this engine process, also while staged again."""
    return Q(boot_id=F("host__boot_id")) & ~Q(phase=StagingPhase.FAILED)


def not_probed(host_name: str) -> QuerySet[Placement]:
    """Return ready placements whose version no host has tried completely, the oldest first."""
    pending = Q(version__effect__agreement__outcome=AgreementOutcome.PENDING)
    versions = Q(version__state=VersionState.READY) & (Q(version__effect__isnull=True) | pending)
    ready = Placement.objects.filter(ready_here(), versions, host__name=host_name)
    return ready.select_related("host", "version__adapter", "version__tenant").order_by("version__created_at")


def not_compared(host_name: str) -> QuerySet[Placement]:
    """Return ready placements of which the host has not said the final dtype, the oldest first."""
    open_ = Q(dtype_report__isnull=True) | Q(dtype_report__outcome=DtypeOutcome.PENDING)
    ready = Placement.objects.filter(ready_here(), open_, host__name=host_name, version__state=VersionState.READY)
    return ready.select_related("host", "version__adapter", "version__tenant").order_by("version__created_at")


def settle_untried(grace: timedelta) -> int:
    """Put versions live whose trial was never reported: the worker died. Returns their number."""
    ready = AdapterVersion.objects.filter(state=VersionState.READY, effect__isnull=True)
    waiting = ready.filter(adapter__archived_at__isnull=True).exclude(adapter__aliases__name=LIVE)
    now = clocks.database_time()
    settled = Q(ready_at__lt=now - grace) | Q(ready_at__gt=now + grace)
    versions = list(waiting.filter(settled).select_related("adapter", "tenant"))
    for version in versions:
        go_live_untried(version)
    return len(versions)


def _superseded(placement: Placement) -> bool:
    """Return whether another worker has the placement, or it was queued again or deleted. Locks the row."""
    claimed = Placement.objects.select_for_update().filter(pk=placement.pk, claim=placement.claim)
    return claimed.first() is None


def _requeue(placements: QuerySet[Placement], **also: Any) -> list[Placement]:
    """Queue placements again and return them. The rows are locked first, so that one that just became ready is kept."""
    rows = list(placements.order_by("pk").select_for_update(of=("self",)).select_related("host"))
    idle = {"claim": None, "claimed_until": None, "attempts": 0, "next_attempt_at": None, "pinned": False}
    unknown = {"dtype": "", "dtype_report": None}
    again = {"phase": StagingPhase.QUEUED, "bytes_done": 0, "error": None, "updated_at": timezone.now()}
    again |= {**idle, **unknown, **also}
    Placement.objects.filter(pk__in=[placement.pk for placement in rows]).update(**again)
    return rows


def _stage_after_commit(placements: list[Placement]) -> None:
    for _ in placements[:MAX_SLOTS]:
        enqueue("placements.stage_next")


def _tell(placement: Placement, bytes_per_second: float) -> None:
    announce(
        placement.version.tenant_id,
        "adapter.staging",
        lambda: {**staging_json(placement), "bytes_per_second": round(bytes_per_second)},
    )
