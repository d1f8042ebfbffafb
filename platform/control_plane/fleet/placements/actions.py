"""Every write about placements, each with its live events after commit."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Count, F, Q, QuerySet, Sum
from django.utils import timezone

from control_plane.adapters.registry.locks import lock_version
from control_plane.adapters.registry.models import LIVE, OUT_OF_USE, AdapterVersion, AgreementOutcome, VersionState
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
from control_plane.core.jobs import claims, clocks, turns
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
from control_plane.fleet.placements.payloads import staging_json
from control_plane.fleet.transport.errors import HostError
from control_plane.identity.access.actor import Actor
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit import actions as audit
from lora_engine.wire import engine_pb2 as pb

MOST_RETRIED = 50
MOST_DROPPED = 100
LONGEST_RETRY_PAUSE = timedelta(hours=1)
PLACED_STATES = (VersionState.VALIDATED, VersionState.STAGING, VersionState.READY)
# At once on one host: one that hangs must not hold every slot.
HOST_STAGINGS = 3
# What a worker reports of a placement; its claim is another column, which is renewed beside.
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
# Slots that are asked for at most for one change: each asks for another when it has done something.
MOST_SLOTS = 100


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


def retry_placement(*, actor: Actor, placement_id: UUID) -> Placement:
    """Stage it again now, without waiting for its pause. One that a worker has in hand is left alone.

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


def place_version(version: AdapterVersion) -> list[Placement]:
    """Want ``version`` where it belongs, and begin staging it where it is not ready: on every host that serves its
    base model, or, where adapters are placed by demand, on those that have it, else on the one that has least.

    Hosts that are offline keep the wish; the reconciler acts on it when they return.
    """
    base = served_bases().for_adapters_of(version.base_digest)
    if base is None:
        return []  # `settle_base_models` says so
    hosts = serving_hosts(base)
    return place_on(version, hosts if current().placement == "everywhere" else _homes(version, hosts))


def _homes(version: AdapterVersion, hosts: list[EngineHost]) -> list[EngineHost]:
    """The plan by demand comes later; until then one host must have it."""
    has = set(version.placements.values_list("host", flat=True))
    if own := [host for host in hosts if host.pk in has]:
        return own
    held = Placement.objects.filter(host__in=hosts).order_by().values_list("host").annotate(Sum("version__bytes"))
    bytes_on = dict(held)
    return sorted(hosts, key=lambda host: (host.state != HostState.ONLINE, bytes_on.get(host.pk, 0), host.name))[:1]


def place_on(version: AdapterVersion, hosts: list[EngineHost]) -> list[Placement]:
    """Want ``version`` on these hosts, and begin staging it where it is not ready. Those that are staged now."""
    with transaction.atomic():
        version = lock_version(version)
        if version.state in OUT_OF_USE:  # archived at this moment
            return []
        for host in hosts:
            Placement.objects.get_or_create(version=version, host=host)
        # What a worker has in hand goes on there.
        idle = version.placements.filter(claims.unclaimed(), host__in=hosts)
        placements = _requeue(idle.exclude(ready_here()))
        mark_version_staging(version)
        _stage_after_commit(placements)
    return placements


def stage_again(version: AdapterVersion) -> list[Placement]:
    """Stage again everywhere, also where it is ready: there it stays callable."""
    with transaction.atomic():
        version = lock_version(version)
        _requeue(version.placements.all())
        return place_version(version)


def withdraw_version(version: AdapterVersion) -> None:
    """No longer want ``version`` anywhere; hosts forget it once no version of any tenant has its content."""
    with transaction.atomic():
        hosts = [placement.host.name for placement in version.placements.select_related("host")]
        version.placements.all().delete()
        for host in hosts:
            enqueue("fleet.drop_unwanted", host, version.digest)


def requeue_after_boot(host: EngineHost) -> int:
    """An engine that restarted has an empty memory: stage again what should be there. How many."""
    with transaction.atomic():
        # What is not ready waits for a worker, who finds the new process by itself.
        ready = Placement.objects.filter(host=host, phase=StagingPhase.READY, version__state__in=PLACED_STATES)
        placements = _requeue(ready.exclude(boot_id=host.boot_id))
        _stage_after_commit(placements)
    return len(placements)


def requeue_unobserved(host: EngineHost, grace: timedelta) -> int:
    """Stage again what is marked ready but absent from the host's own report. How many."""
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
    """Have the host forget what it reports and no version wants there: the task of a withdrawal may have been lost, or
    have met a host that was away. How many."""
    if host.adapters_boot_id != host.boot_id:
        return 0  # as above
    resident = set(host.adapters.values_list("digest", flat=True))
    wanted = Placement.objects.filter(host=host, version__digest__in=resident).values_list("version__digest", flat=True)
    leftovers = sorted(resident.difference(wanted))[:MOST_DROPPED]
    for digest in leftovers:
        enqueue("fleet.drop_unwanted", host.name, digest)
    return len(leftovers)


def requeue_failed(host: EngineHost, now: datetime | None = None) -> int:
    """Stage again what failed there, once its pause is over or the host was started anew. How many.

    Nobody tells when the cause of a failure is gone. The version stays as it is until it is ready: that it is tried
    again is no news for its owner.
    """
    over = clocks.due("next_attempt_at", now or clocks.database_time(), LONGEST_RETRY_PAUSE)
    due = Q(next_attempt_at=None) | over | ~Q(failed_boot_id=host.boot_id)
    states = [*PLACED_STATES, VersionState.FAILED]
    with transaction.atomic():
        failed = Placement.objects.filter(due, host=host, phase=StagingPhase.FAILED, version__state__in=states)
        first = failed.order_by(F("next_attempt_at").asc(nulls_first=True)).values_list("pk", flat=True)[:MOST_RETRIED]
        placements = _requeue(Placement.objects.filter(pk__in=list(first), phase=StagingPhase.FAILED))
        _stage_after_commit(placements)
    return len(placements)


def retry_pause(failures: int) -> timedelta:
    """After so many failures in a row: a minute, two, four, at most an hour."""
    return min(LONGEST_RETRY_PAUSE, timedelta(minutes=1 << min(failures - 1, 10)))


def settle_base_models(bases: ServedBases) -> int:
    """Adapters are neither called nor kept on hosts of another base model. How many versions that ends.

    It is undone by itself: when their base model is served again they are placed like new ones.
    """
    foreign = [host for host in described_hosts() if not bases.is_served_by(host.description)]
    Placement.objects.filter(host__in=foreign).delete()
    if not bases:
        return 0
    Placement.objects.exclude(version__base_digest__in=bases.adapters_of).delete()
    for base in bases:
        own = [host for host in described_hosts() if base.is_served_by(host.description)]
        Placement.objects.filter(host__in=own).exclude(version__base_digest__in=base.adapters_of).delete()
    others = AdapterVersion.objects.filter(state__in=PLACED_STATES).exclude(base_digest__in=bases.adapters_of)
    found = list(others.select_related("tenant"))
    for version in found:
        mark_version_failed(version, of_other_base(version, bases), ready_too=True)
    return len(found)


def follow_renamed(bases: ServedBases) -> None:
    """What versions say of their base model is its name of today."""
    for base in bases:
        AdapterVersion.objects.filter(base_digest=base.digest).exclude(base_model=base.name).update(
            base_model=base.name
        )


def of_other_base(version: AdapterVersion, bases: ServedBases) -> dict[str, str]:
    return {
        "code": "other_base_model",
        "message": f"It was made for the base model {version.base_model} ({short(version.base_digest)}); "
        f"this installation serves {bases} now.",
        "fix": f"Upload an adapter that was trained for {' or '.join(base.name for base in bases)}. This one is used "
        "again if its model comes back.",
    }


def claim_next() -> Placement | None:
    """Take a placement for staging, of the tenant whose turn it is. None if there is none to take now.

    What a worker reports after another has claimed the placement, or it was queued anew, is ignored.
    """
    line = turns.FairQueue("staging", _waiting(), _staging(), current().tenant_stagings, "version__tenant_id")
    if not line.is_open():
        return None
    with transaction.atomic():
        placement = line.choose()
        if placement is None:
            return None
        # One that is under a claim still was begun by a worker that died: that attempt goes on.
        placement.attempts += placement.claim is None
        placement.error = None
        placement.save(update_fields=["attempts", "error", "updated_at"])
        claims.take(placement)
    return placement


def _waiting() -> QuerySet[Placement]:
    """Those that nobody has in hand, on hosts that answer."""
    wanted = Placement.objects.filter(version__state__in=[*PLACED_STATES, VersionState.FAILED])
    open_ = wanted.exclude(phase__in=[StagingPhase.READY, StagingPhase.FAILED])
    over = clocks.due("next_attempt_at", clocks.database_time(), LONGEST_RETRY_PAUSE)
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
    """Store a phase or its progress and tell the tenant's consoles. READY also makes the version ready, and with
    ``to_be_tried`` not live."""
    with transaction.atomic():
        if event.phase == pb.StageEvent.READY:
            lock_version(placement.version)  # before its placement, as whoever places it does
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


def record_stage_failure(placement: Placement, failure: HostError, *, pause_s: float | None) -> None:
    """Store why an attempt failed; `pause_s` until the next one, None if there is none.

    A final failure on the last hope makes the version failed.
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
    """Placements that are ready on the engine process that runs now."""
    return Q(phase=StagingPhase.READY, boot_id=F("host__boot_id"))


def callable_here() -> Q:
    """Placements that this engine process has had ready, also while they are staged again."""
    return Q(boot_id=F("host__boot_id")) & ~Q(phase=StagingPhase.FAILED)


def not_probed(host_name: str) -> QuerySet[Placement]:
    """Versions that are ready there and that no host has tried to the end, the oldest first."""
    pending = Q(version__effect__agreement__outcome=AgreementOutcome.PENDING)
    versions = Q(version__state=VersionState.READY) & (Q(version__effect__isnull=True) | pending)
    ready = Placement.objects.filter(ready_here(), versions, host__name=host_name)
    return ready.select_related("host", "version__adapter", "version__tenant").order_by("version__created_at")


def settle_untried(grace: timedelta) -> int:
    """A worker that waited for their trial has died. How many versions."""
    ready = AdapterVersion.objects.filter(state=VersionState.READY, effect__isnull=True)
    waiting = ready.filter(adapter__archived_at__isnull=True).exclude(adapter__aliases__name=LIVE)
    now = clocks.database_time()
    settled = Q(ready_at__lt=now - grace) | Q(ready_at__gt=now + grace)
    found = list(waiting.filter(settled).select_related("adapter", "tenant"))
    for version in found:
        go_live_untried(version)
    return len(found)


def _superseded(placement: Placement) -> bool:
    """Whether it is in other hands, queued anew or gone. Locks it until the transaction ends."""
    own = Placement.objects.select_for_update().filter(pk=placement.pk, claim=placement.claim)
    return own.first() is None


def _requeue(placements: QuerySet[Placement], **also: Any) -> list[Placement]:
    """Back to the queue, and which they were. Locked first: one that becomes ready at this moment is left alone."""
    found = list(placements.order_by("pk").select_for_update(of=("self",)).select_related("host"))
    idle = {"claim": None, "claimed_until": None, "attempts": 0, "next_attempt_at": None, "pinned": False}
    again = {"phase": StagingPhase.QUEUED, "bytes_done": 0, "error": None, "updated_at": timezone.now(), **idle, **also}
    Placement.objects.filter(pk__in=[placement.pk for placement in found]).update(**again)
    return found


def _stage_after_commit(placements: list[Placement]) -> None:
    for _ in placements[:MOST_SLOTS]:
        enqueue("fleet.stage_next")


def _tell(placement: Placement, bytes_per_second: float) -> None:
    announce(
        placement.version.tenant_id,
        "adapter.staging",
        lambda: {**staging_json(placement), "bytes_per_second": round(bytes_per_second)},
    )
