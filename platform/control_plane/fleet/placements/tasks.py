"""Tasks that stage versions on hosts, and bring what hosts hold towards what they should hold."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from celery import shared_task

from control_plane.adapters.artifacts.configured import artifact_store
from control_plane.adapters.registry.models import AdapterVersion, AgreementOutcome, VersionState
from control_plane.adapters.registry.versions import go_live_untried, record_effect, waits_for_trial
from control_plane.core import traces
from control_plane.core.jobs import claims
from control_plane.core.writes import enqueue
from control_plane.fleet.base_models.base_model import (
    ServedBase,
    ServedBases,
    quarantine,
    served_bases,
    serving_hosts,
)
from control_plane.fleet.hosts import host_status
from control_plane.fleet.hosts.actions import repeat_calls, sync_hosts
from control_plane.fleet.hosts.models import EngineHost, HostState
from control_plane.fleet.joining.joining import renew_due
from control_plane.fleet.placements import actions, demand, pins, prefixes
from control_plane.fleet.placements.models import Placement
from control_plane.fleet.placements.payloads import effect_json
from control_plane.fleet.placements.peers import peers_of
from control_plane.fleet.transport.blocking_client import EngineCalls, engine_calls
from control_plane.fleet.transport.endpoint import configured_endpoints, endpoint_of
from control_plane.fleet.transport.errors import HostError
from lora_engine.wire import engine_pb2 as pb

logger = logging.getLogger(__name__)

# Attempts to stage a version on a host before its placement fails.
STAGE_ATTEMPTS = 5
MAX_PAUSE_S = 60.0
# Seconds between two stored reports of a staging's bytes.
PROGRESS_EVERY_S = 0.25
# Seconds that staging waits for a host's trial of a version, before the version is ready.
STAGING_PATIENCE_S = 0.5
# Seconds that the alias waits for it before the version goes live untried.
FIRST_PATIENCE_S = 2.0
# Seconds that a later trial may take.
LATER_PATIENCE_S = 5.0
# Versions that one task has a host try.
PROBE_BATCH = 8
# Time after which a ready placement that the host does not report is staged again.
UNOBSERVED_GRACE = timedelta(seconds=15)
# Time after which a ready version goes live without a trial, as its worker must have died.
UNTRIED_GRACE = timedelta(seconds=10)


@shared_task(name="placements.stage_next")
def stage_next() -> bool:
    """Stage one version on one host, then enqueue the next staging. Returns False if there is none to stage now.

    Each phase is reported; a failure that may pass is followed by another attempt later.
    """
    placement = actions.claim_next()
    if placement is None:
        return False
    progress = Progress(placement)
    with claims.keep(placement):
        try:
            stage(placement, progress)
            progress.report()
        except HostError as failure:
            progress.report(failure.code)
            # A failure that the host does not expect to pass is the adapter's: another attempt cannot help.
            final = failure.retry_after_s is None or placement.attempts >= STAGE_ATTEMPTS
            pause_s = None if final else pause_before_retry(placement.attempts - 1, failure)
            actions.record_stage_failure(placement, failure, pause_s=pause_s)
            logger.warning("staging %s on %s failed: %s", placement.version.digest, placement.host.name, failure)
    enqueue("placements.stage_next")
    return True


def pause_before_retry(retries: int, failure: HostError) -> float:
    """Return the pause in seconds: 1, 2, 4, ... or what the host requested, at most a minute."""
    return min(MAX_PAUSE_S, max(2.0**retries, failure.retry_after_s or 0.0))


def stage(placement: Placement, progress: Progress) -> None:
    """Make one attempt at staging. Raises the ``HostError`` it ended with."""
    endpoint = endpoint_of(placement.host.name)
    bases = served_bases()
    base = bases.for_adapters_of(placement.version.base_digest)
    with engine_calls(endpoint) as engine:
        description = engine.describe()
        require_base(endpoint.name, ServedBases((base,)) if base else bases, description)
        progress.boot_id = description.boot_id
        for event in engine.stage(stage_request(placement, base)):
            if event.phase == pb.StageEvent.READY:  # try it before it is ready, so that no inert version goes live
                progress.tried = probe(engine, placement, STAGING_PATIENCE_S)
            progress.take(event)
            if event.phase == pb.StageEvent.FAILED:
                raise HostError.from_wire(event.error)
        if progress.ready and not progress.tried and waits_for_trial(placement.version):
            probe(engine, placement, FIRST_PATIENCE_S)
            go_live_untried(placement.version)
        if progress.ready:
            compare_dtypes(engine, placement, STAGING_PATIENCE_S)
    if progress.ready and pins.is_pinned(placement.version.adapter):
        enqueue("placements.apply_pins", endpoint.name)
    if not progress.ready:
        raise HostError(
            "staging_interrupted",
            f"Engine host {endpoint.name} ended the staging before it was ready.",
            "It is tried again by itself.",
            retry_after_s=1.0,
        )


def require_base(host: str, bases: ServedBases, description: pb.EngineDescription) -> None:
    """Raise HostError if the host was restarted with another model that the watcher has not seen yet."""
    reason = quarantine(bases, host_status.description_json(description))
    if reason is not None:
        raise HostError(reason.code, f"{host}: {reason.message}", reason.fix, retry_after_s=5.0)


class Progress:
    """A recorder of one attempt: every change of phase, and the bytes at most four times a second with their rate."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._started = time.time()
        self._phases: list[tuple[str, float]] = []  # with the time at which each began
        self._phase: int | None = None
        self._bytes = 0
        self._at = time.monotonic()
        self.boot_id = ""  # of the engine that stages
        self.ready = self.tried = False

    def take(self, event: pb.StageEvent) -> None:
        self.ready = event.phase == pb.StageEvent.READY
        now = time.monotonic()
        unchanged = event.phase == self._phase
        if not unchanged:
            self._phases.append((pb.StageEvent.Phase.Name(event.phase).lower(), time.time()))
        if event.phase == pb.StageEvent.FAILED or (unchanged and now - self._at < PROGRESS_EVERY_S):
            return
        rate = max(0, event.bytes_done - self._bytes) / max(now - self._at, 1e-3) if unchanged else 0.0
        self._phase, self._bytes, self._at = event.phase, event.bytes_done, now
        actions.record_stage_event(self._placement, event, self.boot_id, rate, to_be_tried=not self.tried)

    def report(self, error: str = "") -> None:
        """Report the attempt as a trace without a parent, as no request caused it; nothing while traces are off."""
        if not traces.is_on():
            return
        placement, end = self._placement, time.time()
        version, ends = placement.version, [*(began for _, began in self._phases), end][1:]
        attributes: dict[str, str | int] = {
            "server.address": placement.host.name,
            "lorikeet.tenant": version.tenant.slug,
            "lorikeet.adapter": f"{version.adapter.name}@v{version.number}",
            "lorikeet.attempt": placement.attempts,
        }
        phases = [
            traces.SpanPart(name, began, until, {})
            for (name, began), until in zip(self._phases, ends, strict=True)
            if name not in ("ready", "failed")
        ]
        traces.report(traces.SpanPart("stage adapter", self._started, end, attributes), phases, error=error)


def stage_request(placement: Placement, base: ServedBase | None) -> pb.StageAdapterRequest:
    """Return the engine's request for a placement. Raises HostError if the store is away."""
    version = placement.version
    store, digest = artifact_store(), version.digest
    try:
        return pb.StageAdapterRequest(
            digest=digest,
            source_uri=store.uri(digest),
            file_uris=store.file_uris(digest),
            file_digests=version.file_digests,
            base_digest=base.digest if base else "",
            peers=peers_of(placement),
            adapter_dtype=version.adapter_dtype,
        )
    except OSError as error:
        raise HostError(
            "artifact_store_unavailable",
            f"The artifact store cannot be reached: {error}.",
            "Check LORIKEET_ARTIFACT_URL and the store's credentials; it is tried again by itself.",
            retry_after_s=5.0,
        ) from error


def probe(engine: EngineCalls, placement: Placement, patience_s: float) -> bool:
    """Have the host try the version if none has, or complete a pending comparison. Returns False if it could not now.

    A version without a trial is served all the same.
    """
    version = placement.version
    if version.effect is not None and version.agreement != AgreementOutcome.PENDING:
        return True
    try:
        template = version.chat_template
        effect = engine.probe(version.digest, patience_s, pb.ChatTemplate(**template) if template else None)
    except HostError as failure:
        logger.info("%s was not tried on %s: %s", version.digest, placement.host.name, failure)
        return False
    record_effect(version, effect_json(effect, placement.host.name))
    return True


def compare_dtypes(engine: EngineCalls, placement: Placement, patience_s: float) -> bool:
    """Store in which dtype the host serves the version, and the comparison so far. Returns False if it did not say.

    Until the host has compared them, it serves the version in the dtype of its model.
    """
    version = placement.version
    try:
        template = version.chat_template
        report = engine.compare_dtypes(
            version.digest, version.adapter_dtype, patience_s, pb.ChatTemplate(**template) if template else None
        )
    except HostError as failure:
        logger.info("%s: the dtype of %s is not known: %s", placement.host.name, version.digest, failure)
        return False
    actions.record_dtype(placement, report)
    return True


@shared_task(name="placements.place_by_demand")
def place_by_demand() -> None:
    """Add copies of adapters with much load and remove surplus ones. Does nothing unless placement is by demand."""
    if not demand.is_on():
        return
    for base in served_bases():
        added, taken = demand.place_by_demand(base)
        if added or taken:
            logger.info("placement of %s by demand: %d copies added, %d removed", base.name, added, taken)


@shared_task(name="placements.probe_missing")
def probe_missing(host_name: str) -> None:
    """Have a host try versions that could not be tried while they were staged, and complete pending comparisons with
    the unquantised base and of dtypes.
    """
    missing = list(actions.not_probed(host_name)[:PROBE_BATCH])
    not_compared = list(actions.not_compared(host_name)[:PROBE_BATCH])
    if not missing and not not_compared:
        return
    with engine_calls(endpoint_of(host_name)) as engine:
        for placement in missing:
            if not probe(engine, placement, LATER_PATIENCE_S):
                return
        for placement in not_compared:
            if not compare_dtypes(engine, placement, LATER_PATIENCE_S):
                return


@shared_task(name="placements.apply_pins")
def apply_pins(host_name: str) -> None:
    """Send a host its pinned adapters and prefixes, and store which it keeps. The reconciler repeats it."""
    host = EngineHost.objects.filter(name=host_name, active=True, state=HostState.ONLINE).first()
    if host is None:
        return
    # Versions with the same content may have different settings: then it is pinned in both dtypes.
    contents = dict.fromkeys((p.version.digest, p.version.adapter_dtype) for p in pins.wanted_pins(host))
    digests, dtypes = [digest for digest, _ in contents], [dtype for _, dtype in contents]
    try:
        with engine_calls(endpoint_of(host.name)) as engine:
            pins.record_pins(host, set(engine.pin(digests, dtypes)))
            prefixes.keep(host, engine)
    except HostError as failure:
        logger.warning("The pins could not be sent to host %s; the reconciler tries again: %s", host.name, failure)


@shared_task(name="placements.drop_unwanted")
def drop_unwanted(host_name: str, digest: str) -> None:
    """Have a host drop content that no version wants there any more."""
    if Placement.objects.filter(host__name=host_name, version__digest=digest).exists():
        return
    host = EngineHost.objects.get(name=host_name)
    if host.state != HostState.ONLINE:
        return  # waiting for a silent host would occupy a slot that others need
    with engine_calls(endpoint_of(host.name)) as engine:
        engine.drop(digest)


@shared_task(name="placements.reconcile")
def reconcile(host_name: str = "") -> None:
    """Bring what hosts hold towards what they should hold. Safe to run at any time, any number of times."""
    sync_hosts(configured_endpoints())
    repeat_calls()
    renew_due()
    bases = served_bases()
    actions.settle_base_models(bases)
    actions.settle_untried(UNTRIED_GRACE)
    actions.follow_renamed(bases)
    place_missing(bases)
    serving = [host.pk for host in serving_hosts(bases)]
    prefixes.forget_deleted()
    hosts = EngineHost.objects.filter(pk__in=serving, state=HostState.ONLINE)
    for host in hosts.filter(name=host_name) if host_name else hosts:
        actions.requeue_after_boot(host)
        actions.requeue_unobserved(host, UNOBSERVED_GRACE)
        actions.requeue_failed(host)
        actions.drop_leftovers(host)
        if actions.not_probed(host.name).exists() or actions.not_compared(host.name).exists():
            enqueue("placements.probe_missing", host.name)
        if pins.needs_pins(host):
            enqueue("placements.apply_pins", host.name)
    enqueue("placements.stage_next")  # for placements that waited for a host to answer


def place_missing(bases: ServedBases) -> None:
    """Place versions that lack a placement on some host: new versions, every version on a new host, and those whose
    base model is served again. By demand: those that are on none and were ready on none."""
    wanted = AdapterVersion.objects.filter(state__in=[*actions.PLACED_STATES, VersionState.FAILED])
    if demand.is_on():
        homeless = wanted.exclude(state=VersionState.READY).filter(placements=None)
        for version in homeless.filter(base_digest__in=bases.adapters_of):
            actions.place_version(version)
        return
    for base in bases:
        for host in serving_hosts(base):
            for version in wanted.filter(base_digest__in=base.adapters_of).exclude(placements__host=host):
                actions.place_version(version)
