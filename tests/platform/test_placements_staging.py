"""Placements, staging, reconciling and usage recovery against a scripted engine."""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from lorikeet_testing.concurrent import while_another_commits
from lorikeet_testing.fake_engine import BASE_DIGEST, FakeEngine, FakeEngineThread
from lorikeet_testing.platform_fixtures import Queue
from lorikeet_testing.seed import add_version

from control_plane.adapters.registry import queries
from control_plane.adapters.registry.locks import lock_version
from control_plane.adapters.registry.models import AdapterVersion, Alias, VersionState
from control_plane.adapters.registry.payloads import LARGEST, adapter_json, plain
from control_plane.adapters.registry.resolve import ModelLoadingError, resolve_model
from control_plane.adapters.registry.serializers import VersionSerializer
from control_plane.adapters.registry.versions import VersionArchivedError, mark_version_ready, record_effect
from control_plane.billing.usage import request_ids
from control_plane.billing.usage.models import ApiEndpoint, UsageEvent
from control_plane.billing.usage.recovery import recover_usage
from control_plane.core import traces
from control_plane.core.config import current
from control_plane.core.errors import NotFoundError
from control_plane.fleet.hosts import actions as fleet_actions
from control_plane.fleet.hosts.actions import repeat_calls
from control_plane.fleet.hosts.api.queries import hosts_for_operator
from control_plane.fleet.hosts.models import EngineHost, HostService, HostState, StagingPhase
from control_plane.fleet.hosts.tasks import apply_service
from control_plane.fleet.placements import actions, tasks
from control_plane.fleet.placements.models import Placement
from control_plane.fleet.placements.payloads import effect_json
from control_plane.fleet.placements.queries import staging_page
from control_plane.fleet.transport.blocking_client import engine_calls
from control_plane.fleet.transport.endpoint import HostEndpoint, configured_endpoints, endpoint_of
from control_plane.fleet.transport.errors import HostError
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.models import Tenant
from lora_engine.peft_format import Part, combined_digest
from lora_engine.wire import engine_pb2 as pb
from lorikeet_cli.effect import dtypes_text, effect_text

pytestmark = pytest.mark.django_db


@pytest.fixture
def engine(fake_host: FakeEngineThread) -> FakeEngine:
    return fake_host.engine


@pytest.fixture
def endpoint(engine: FakeEngine) -> HostEndpoint:
    return HostEndpoint("local", engine.address)


@pytest.fixture
def host(engine: FakeEngine, endpoint: HostEndpoint, settings: Any) -> EngineHost:
    settings.LORIKEET = current().model_copy(update={"engine_hosts": {"local": engine.address}})
    fleet_actions.sync_hosts(configured_endpoints())
    with engine_calls(endpoint) as calls:
        fleet_actions.record_boot("local", calls.describe())
    return EngineHost.objects.get(name="local")


@pytest.fixture
def tenant() -> Tenant:
    return Tenant.objects.create(slug="acme", name="Acme")


@pytest.fixture
def version(tenant: Tenant) -> AdapterVersion:
    made: AdapterVersion = add_version(tenant, "support")
    return made


def stage_all() -> None:
    """As workers do, without their pauses."""
    Placement.objects.update(next_attempt_at=None)
    for _ in Placement.objects.all():
        tasks.stage_next()


def test_describe_stores_the_geometry(host: EngineHost) -> None:
    assert host.state == HostState.ONLINE
    assert host.description["geometry"]["hidden_size"] == 64
    assert host.description["base_digest"] == BASE_DIGEST


def test_hosts_no_longer_configured_become_inactive(host: EngineHost) -> None:
    fleet_actions.sync_hosts({"other": HostEndpoint("other", "10.0.0.2:7000")})
    assert {h.name: h.active for h in EngineHost.objects.all()} == {"local": False, "other": True}


def test_staging_makes_a_version_ready_and_live(host: EngineHost, version: AdapterVersion, engine: FakeEngine) -> None:
    (placement,) = actions.place_version(version)
    version.refresh_from_db()
    assert (version.state, placement.phase) == (VersionState.STAGING, StagingPhase.QUEUED)
    stage_all()
    placement.refresh_from_db()
    version.refresh_from_db()
    assert (placement.phase, placement.boot_id, placement.pool_pages) == (StagingPhase.READY, engine.boot_id, 3)
    assert placement.bytes_done == placement.bytes_total == 1 << 20
    assert version.state == VersionState.READY
    assert Alias.objects.get(adapter=version.adapter).version == version
    (request,) = engine.stage_calls
    assert request.digest == version.digest
    assert request.source_uri.startswith("file:///") and version.digest[7:] in request.source_uri
    assert dict(request.file_digests) == version.file_digests


def test_a_passing_failure_is_retried(host: EngineHost, version: AdapterVersion, engine: FakeEngine) -> None:
    engine.behaviour.stage_failures[version.digest] = "download_failed"
    (placement,) = actions.place_version(version)
    tasks.stage_next()
    placement.refresh_from_db()
    assert (placement.phase, placement.attempts) == (StagingPhase.QUEUED, 1)
    assert placement.next_attempt_at is not None
    assert timezone.now() < placement.next_attempt_at < timezone.now() + timedelta(seconds=5)
    tasks.stage_next()
    assert len(engine.stage_calls) == 1, "not before its pause is over"
    assert placement.error == {
        "code": "download_failed",
        "message": "staging failed as scripted",
        "fix": "stage it again",
    }
    stage_all()
    placement.refresh_from_db()
    assert (placement.phase, placement.error) == (StagingPhase.READY, None)


def test_a_host_that_does_not_answer_is_recorded_with_traces_too(
    host: EngineHost, version: AdapterVersion, fake_host: FakeEngineThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[tuple[str, int, str]] = []

    def report(root: traces.SpanPart, phases: list[traces.SpanPart], error: str) -> None:
        reported.append((root.name, len(phases), error))

    monkeypatch.setattr(traces, "is_on", lambda: True)
    monkeypatch.setattr(traces, "report", report)
    (placement,) = actions.place_version(version)
    fake_host.stop()
    tasks.stage_next()
    placement.refresh_from_db()
    assert (placement.phase, placement.attempts) == (StagingPhase.QUEUED, 1)
    assert placement.error is not None and placement.error["code"] == "engine_unavailable"
    assert reported == [("stage adapter", 0, "engine_unavailable")]


def test_a_permanent_failure_is_final_and_can_be_restaged(
    host: EngineHost, version: AdapterVersion, engine: FakeEngine
) -> None:
    engine.behaviour.stage_failures[version.digest] = "digest_mismatch"
    (placement,) = actions.place_version(version)
    stage_all()
    placement.refresh_from_db()
    version.refresh_from_db()
    assert placement.phase == StagingPhase.FAILED
    assert version.state == VersionState.FAILED
    assert version.error is not None and version.error["code"] == "digest_mismatch"
    actions.stage_again(version)
    stage_all()
    version.refresh_from_db()
    assert version.state == VersionState.READY


def test_pauses_grow_and_hosts_may_ask_for_more() -> None:
    plain, busy = HostError("x", "", ""), HostError("x", "", "", retry_after_s=30)
    assert [tasks.pause_before_retry(n, plain) for n in (0, 1, 2, 10)] == [1, 2, 4, 60]
    assert tasks.pause_before_retry(0, busy) == 30


def test_an_absent_engine_leaves_the_placement_waiting(
    host: EngineHost, version: AdapterVersion, fake_host: FakeEngineThread
) -> None:
    (placement,) = actions.place_version(version)
    fake_host.stop()
    tasks.stage_next()
    placement.refresh_from_db()
    assert placement.phase == StagingPhase.QUEUED
    assert placement.error is not None and placement.error["code"] == "engine_unavailable"


def test_a_restarted_engine_gets_everything_again(
    host: EngineHost, version: AdapterVersion, engine: FakeEngine, fake_host: FakeEngineThread, endpoint: HostEndpoint
) -> None:
    actions.place_version(version)
    stage_all()
    assert actions.requeue_after_boot(host) == 0
    fake_host.stop()
    fake_host.start()
    with engine_calls(endpoint) as calls:
        assert fleet_actions.record_boot("local", calls.describe())
        assert not fleet_actions.record_boot("local", calls.describe())
    host.refresh_from_db()
    assert not Placement.objects.filter(actions.ready_here()).exists()
    assert actions.requeue_after_boot(host) == 1
    stage_all()
    assert version.digest in engine.resident
    assert Placement.objects.filter(actions.ready_here()).exists()


def callable_hosts(version: AdapterVersion) -> list[str]:
    placed = Placement.objects.filter(actions.callable_here(), version=version)
    return list(placed.values_list("host__name", flat=True))


def test_it_stays_callable_while_it_is_staged_again(
    host: EngineHost, version: AdapterVersion, engine: FakeEngine
) -> None:
    actions.place_version(version)
    assert callable_hosts(version) == []
    stage_all()
    actions.stage_again(version)
    assert callable_hosts(version) == ["local"]
    attempt = actions.claim_next()
    assert attempt is not None
    loading = pb.StageEvent(phase=pb.StageEvent.LOADING)
    actions.record_stage_event(attempt, loading, engine.boot_id, 0.0)
    assert callable_hosts(version) == ["local"]
    actions.record_stage_failure(attempt, HostError("digest_mismatch", "", ""), pause_s=None)
    assert callable_hosts(version) == []


@pytest.fixture
def attempt(host: EngineHost, version: AdapterVersion) -> Placement:
    actions.place_version(version)
    attempt = actions.claim_next()
    assert attempt is not None
    return attempt


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("again", ["placed", "attempted"])
def test_what_becomes_ready_at_this_moment_is_left_alone(
    version: AdapterVersion, attempt: Placement, engine: FakeEngine, again: str
) -> None:
    ready = pb.StageEvent(phase=pb.StageEvent.READY)
    Placement.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))  # its worker is late
    second: dict[str, Callable[[], Any]] = {
        "placed": lambda: len(actions.place_version(version)),
        "attempted": lambda: actions.claim_next() is not None,
    }
    assert not while_another_commits(
        lambda: actions.record_stage_event(attempt, ready, engine.boot_id, 0.0), second[again]
    )
    assert Placement.objects.get().phase == StagingPhase.READY


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_becoming_ready_and_being_placed_wait_for_each_other_in_one_order(
    version: AdapterVersion, attempt: Placement, engine: FakeEngine
) -> None:
    """Both lock the version first: in two orders, PostgreSQL would end one of them."""
    ready = pb.StageEvent(phase=pb.StageEvent.READY)
    while_another_commits(
        lambda: lock_version(version),
        lambda: actions.record_stage_event(attempt, ready, engine.boot_id, 0.0),
        lambda: actions.place_version(version),
    )
    assert Placement.objects.get().phase == StagingPhase.READY


def test_what_a_host_lost_is_staged_again(host: EngineHost, version: AdapterVersion, engine: FakeEngine) -> None:
    actions.place_version(version)
    stage_all()
    assert actions.requeue_unobserved(host, timedelta(0)) == 0, "it has not told yet what it has"
    fleet_actions.record_status("local", engine.status())
    host.refresh_from_db()
    assert actions.requeue_unobserved(host, timedelta(0)) == 0
    engine.resident.clear()
    fleet_actions.record_status("local", engine.status())
    host.refresh_from_db()
    assert actions.requeue_unobserved(host, timedelta(hours=1)) == 0
    assert callable_hosts(version) == ["local"]
    assert actions.requeue_unobserved(host, timedelta(0)) == 1
    assert callable_hosts(version) == []


def test_what_a_dead_worker_had_is_staged_by_another(host: EngineHost, attempt: Placement) -> None:
    assert actions.claim_next() is None
    Placement.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
    second = actions.claim_next()
    assert second is not None
    assert second.attempts == 1, "it is the same attempt"
    actions.record_stage_failure(attempt, HostError("late", "", ""), pause_s=None)
    assert Placement.objects.get().phase == StagingPhase.QUEUED


def test_a_host_that_does_not_answer_is_not_tried(host: EngineHost, version: AdapterVersion) -> None:
    """It would use up the attempts of whatever waits for it, and the slots of other hosts."""
    actions.place_version(version)
    fleet_actions.record_offline("local")
    assert actions.claim_next() is None
    EngineHost.objects.update(state=HostState.ONLINE)
    assert actions.claim_next() is not None


def test_what_is_staged_now_is_not_begun_anew_by_another_upload(
    host: EngineHost, version: AdapterVersion, attempt: Placement
) -> None:
    assert actions.place_version(version) == []
    assert not actions._superseded(attempt)


def test_a_first_reconciliation_queues_each_once(
    host: EngineHost, version: AdapterVersion, queue: Any, committing: Any
) -> None:
    with committing():
        tasks.reconcile()
    assert queue.names() == ["stage_next", "stage_next"], "one for the version, one for what may have waited"


def test_reconcile_places_what_has_no_placement(host: EngineHost, version: AdapterVersion) -> None:
    tasks.reconcile()
    assert Placement.objects.filter(version=version, host=host).exists()
    tasks.reconcile()
    assert Placement.objects.count() == 1


def test_withdrawn_content_is_dropped_unless_another_version_needs_it(
    host: EngineHost, version: AdapterVersion, engine: FakeEngine
) -> None:
    other = Tenant.objects.create(slug="globex", name="Globex")
    twin = add_version(other, "same")
    AdapterVersion.objects.filter(pk=twin.pk).update(digest=version.digest)
    twin.refresh_from_db()
    actions.place_version(version)
    actions.place_version(twin)
    stage_all()
    actions.withdraw_version(version)
    tasks.drop_unwanted("local", version.digest)
    assert version.digest in engine.resident
    actions.withdraw_version(twin)
    tasks.drop_unwanted("local", version.digest)
    assert version.digest not in engine.resident


def test_content_whose_drop_was_lost_is_dropped_by_the_reconciler(
    host: EngineHost, version: AdapterVersion, engine: FakeEngine, queue: Any, committing: Any
) -> None:
    withdrawn = add_version(Tenant.objects.create(slug="globex", name="Globex"), "withdrawn")
    for placed in (version, withdrawn):
        actions.place_version(placed)
    stage_all()
    withdrawn.placements.all().delete()  # and nobody told the host
    AdapterVersion.objects.filter(pk=withdrawn.pk).update(state=VersionState.ARCHIVED)
    fleet_actions.record_status("local", engine.status())
    with committing():
        tasks.reconcile()
    dropped = [arguments for task, arguments in queue.calls if task == "placements.drop_unwanted"]
    assert dropped == [("local", withdrawn.digest)]


# -- usage that no web process stored --------------------------------------------


def journal(engine: FakeEngine, request_id: str, tenant: Tenant, digest: str = "", seq: int = 1) -> pb.UsageRecord:
    record = pb.UsageRecord(
        request_id=request_id,
        tenant=str(tenant.pk),
        adapter_digest=digest,
        prompt_tokens=11,
        completion_tokens=7,
        outcome="aborted",
        submitted_unix=time.time() - 100,
        finished_unix=time.time() - 90,
        seq=seq,
    )
    engine.journal[request_id] = record
    return record


@pytest.fixture
def principal(tenant: Tenant) -> Principal:
    key = ApiKey.objects.create(tenant=tenant, name="k", prefix="p", secret_hash="h", scopes=["infer"])
    return Principal.of_key(key)


def test_usage_survives_its_web_process(
    host: EngineHost,
    endpoint: HostEndpoint,
    engine: FakeEngine,
    tenant: Tenant,
    version: AdapterVersion,
    principal: Principal,
) -> None:
    request_id = request_ids.make(principal, ApiEndpoint.CHAT, streamed=True)
    journal(engine, request_id, tenant, version.digest)
    assert recover_usage(endpoint) == 1
    event = UsageEvent.objects.get(request_id=request_id)
    assert (event.prompt_tokens, event.completion_tokens, event.outcome) == (11, 7, "aborted")
    assert (event.tenant, event.api_key, event.version) == (tenant, principal.api_key, version)
    assert (event.endpoint, event.streamed, event.model, event.host) == (ApiEndpoint.CHAT, True, "support@v1", "local")
    assert engine.acknowledged == {request_id}
    assert recover_usage(endpoint) == 0


def test_recovered_usage_of_a_combination_names_all_its_adapters(
    host: EngineHost, endpoint: HostEndpoint, engine: FakeEngine, version: AdapterVersion, principal: Principal
) -> None:
    request_id = request_ids.make(principal, ApiEndpoint.CHAT, streamed=True)
    gone = Part("sha256:" + "f" * 64, 2.0)  # not the tenant's, or deleted
    digest = combined_digest([Part(version.digest, 0.5), gone])
    journal(engine, request_id, version.tenant, digest)
    assert recover_usage(endpoint) == 1
    event = UsageEvent.objects.get(request_id=request_id)
    assert (event.adapter, event.version, event.model) == (version.adapter, None, "support@v1:0.5")


def test_what_is_stored_already_is_acknowledged_and_not_doubled(
    host: EngineHost, endpoint: HostEndpoint, engine: FakeEngine, tenant: Tenant, principal: Principal
) -> None:
    request_id = request_ids.make(principal, ApiEndpoint.COMPLETIONS, streamed=False)
    journal(engine, request_id, tenant)
    recover_usage(endpoint)
    engine.acknowledged.clear()
    assert recover_usage(endpoint) == 0
    assert engine.acknowledged == {request_id}
    assert UsageEvent.objects.count() == 1


def test_fresh_records_are_left_to_the_web_process(
    host: EngineHost, endpoint: HostEndpoint, engine: FakeEngine, tenant: Tenant, principal: Principal
) -> None:
    record = journal(engine, request_ids.make(principal, ApiEndpoint.CHAT, streamed=True), tenant)
    record.finished_unix = time.time()
    assert recover_usage(endpoint) == 0
    assert not engine.acknowledged


def test_many_pages_take_few_queries(
    host: EngineHost,
    endpoint: HostEndpoint,
    engine: FakeEngine,
    tenant: Tenant,
    principal: Principal,
    django_assert_max_num_queries: Any,
) -> None:
    for seq in range(1, 603):
        journal(engine, request_ids.make(principal, ApiEndpoint.CHAT, streamed=True), tenant, seq=seq)
    with django_assert_max_num_queries(44):  # of two pages; on SQLite each inserts some hundred rows at a time
        assert recover_usage(endpoint) == 602
    assert UsageEvent.objects.count() == 602


def test_records_of_nobody_are_put_aside(host: EngineHost, endpoint: HostEndpoint, engine: FakeEngine) -> None:
    stranger = Tenant(id=uuid.uuid4())
    journal(engine, "smoke-test", stranger)
    assert recover_usage(endpoint) == 0
    assert engine.acknowledged == {"smoke-test"}


def test_request_ids_say_who_asked(principal: Principal) -> None:
    made = request_ids.make(principal, ApiEndpoint.COMPLETIONS, streamed=False)
    assert len(made) <= 64
    asker = request_ids.parse(made)
    assert asker is not None and principal.api_key is not None
    assert (asker.key_id, asker.user_id) == (principal.api_key.pk, None)
    assert (asker.endpoint, asker.streamed) == (ApiEndpoint.COMPLETIONS, False)
    assert request_ids.parse("req_whatever") is None


def test_a_second_task_for_the_same_placement_changes_nothing(
    host: EngineHost, version: AdapterVersion, engine: FakeEngine
) -> None:
    (placement,) = actions.place_version(version)
    earlier = actions.claim_next()
    Placement.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
    tasks.stage_next()
    assert earlier is not None
    actions.record_stage_event(earlier, pb.StageEvent(phase=pb.StageEvent.QUEUED), engine.boot_id, 0.0)
    actions.record_stage_failure(earlier, HostError("late", "", ""), pause_s=None)
    placement.refresh_from_db()
    assert placement.phase == StagingPhase.READY
    tasks.stage_next()
    assert len(engine.stage_calls) == 1


def test_what_is_being_staged_is_not_begun_again(host: EngineHost, version: AdapterVersion) -> None:
    actions.place_version(version)
    assert actions.requeue_after_boot(host) == 0
    tasks.reconcile()
    assert Placement.objects.get().attempts == 0


# -- what operators want of hosts --------------------------------------------------------------------------------------


def operator_sets(service: HostService) -> None:
    fleet_actions.set_service(actor=SYSTEM, name="local", service=service)


def test_a_cordoned_host_gets_nothing_new_and_keeps_what_it_has(
    host: EngineHost, tenant: Tenant, version: AdapterVersion, engine: FakeEngine
) -> None:
    actions.place_version(version)
    stage_all()
    later = add_version(tenant, "later")
    actions.place_version(later)
    operator_sets(HostService.CORDONED)
    stage_all()
    assert actions.place_version(add_version(tenant, "last")) == []
    assert [len(engine.stage_calls), engine.draining] == [1, False]
    (row,) = staging_page(phase="", host="", search="", offset=0, limit=50).results
    assert (row["adapter"], row["phase"], row["waits_for"]) == ("later", "queued", "host_cordoned")
    operator_sets(HostService.SERVING)
    tasks.reconcile()
    stage_all()
    page = staging_page(phase="", host="", search="", offset=0, limit=50)
    assert (page.total, page.phases["ready"]) == (0, 3)


def test_draining_follows_the_engine_through_its_restarts(
    host: EngineHost,
    engine: FakeEngine,
    fake_host: FakeEngineThread,
    endpoint: HostEndpoint,
    queue: Queue,
    committing: Any,
) -> None:
    def reconcile() -> None:
        with engine_calls(endpoint) as calls:
            fleet_actions.record_boot("local", calls.describe())
        with committing():
            repeat_calls()
        for name, arguments in queue.calls:
            if name == "hosts.apply_service":
                apply_service(*arguments)
        queue.calls.clear()

    operator_sets(HostService.DRAINED)
    reconcile()
    assert engine.draining
    fake_host.stop()
    apply_service("local")  # away: said, and tried again by the reconciler
    fake_host.start()
    assert not engine.draining
    reconcile()
    assert engine.draining
    operator_sets(HostService.CORDONED)
    reconcile()
    assert not engine.draining
    engine.draining = True  # it stops by itself: nobody takes that back
    reconcile()
    assert engine.draining


def test_what_failed_says_why_and_is_tried_at_once(attempt: Placement) -> None:
    error = HostError("cannot_load", "It cannot be loaded.", "Upload another.")
    actions.record_stage_failure(attempt, error, pause_s=None)
    (row,) = staging_page(phase="failed", host="local", search="ACME", offset=0, limit=50).results
    assert (row["error"]["code"], row["failures"], row["waits_for"]) == ("cannot_load", 1, "retry")
    assert row["next_attempt_at"] is not None
    actions.retry_placement(actor=SYSTEM, placement_id=attempt.pk)
    tasks.stage_next()
    assert Placement.objects.get(pk=attempt.pk).phase == StagingPhase.READY
    with pytest.raises(NotFoundError):
        actions.retry_placement(actor=SYSTEM, placement_id=uuid.uuid4())


def test_what_would_be_callable_nowhere_is_counted(host: EngineHost, version: AdapterVersion) -> None:
    actions.place_version(version)
    stage_all()
    (shown,) = hosts_for_operator()
    assert (shown["service"], shown["only_here"]) == ("serving", 1)
    second = EngineHost.objects.create(
        name="second", address="unix:/none", boot_id="b", description=host.description, state=HostState.ONLINE
    )
    Placement.objects.create(version=version, host=second, phase=StagingPhase.READY, boot_id="b")
    assert [shown["only_here"] for shown in hosts_for_operator()] == [0, 0]


def staged_and_shown(version: AdapterVersion) -> Any:
    actions.place_version(version)
    stage_all()
    version.refresh_from_db()
    assert version.state == VersionState.READY
    return plain(VersionSerializer(queries.get_version(version.tenant, version.adapter.name, version.number)).data)


def test_staging_tries_a_version(host: EngineHost, version: AdapterVersion, engine: FakeEngine) -> None:
    shown = staged_and_shown(version)
    assert (shown["verdict"], shown["effect"]["verdict"]) == ("acts", "acts")
    assert (shown["effect"]["tokens"], shown["effect"]["differing_tokens"]) == (2, 1)
    assert shown["effect"]["prompts"][0]["adapter_tokens"] == ["Arr", " am"]
    assert shown["effect"]["layer_changes"] == [0.125, 0.0]
    assert shown["effect"]["host"] == "local"
    assert effect_text(shown["effect"]) == "it acts: 1 of 2 tokens differ from the base model's"
    assert AuditEvent.objects.get(action="version.probe").detail["verdict"] == "acts"
    assert Alias.objects.filter(version=version).exists()
    stage_all()
    actions.stage_again(version)
    stage_all()
    assert engine.probe_calls == [version.digest]  # once is enough: content never changes


@pytest.mark.parametrize(
    ("verdict", "told"),
    [(pb.AdapterEffect.CHANGES_NOTHING, "CHANGES NOTHING"), (pb.AdapterEffect.OVERFLOWS, "OVERFLOWS")],
)
def test_what_does_not_act_is_flagged_before_it_is_live(
    host: EngineHost,
    version: AdapterVersion,
    engine: FakeEngine,
    verdict: pb.AdapterEffect.Verdict,
    told: str,
) -> None:
    engine.behaviour.verdicts[version.digest] = verdict
    shown = staged_and_shown(version)
    assert shown["verdict"] == pb.AdapterEffect.Verdict.Name(verdict).lower()
    assert told in effect_text(shown["effect"])
    assert adapter_json(version.adapter)["versions"][0]["verdict"] == shown["verdict"]
    # What changes nothing answers as the base model does.
    live = verdict == pb.AdapterEffect.CHANGES_NOTHING
    assert (shown["asks_for_effect"], Alias.objects.filter(version=version).exists()) == (True, live)


def test_numbers_that_json_does_not_have_are_kept_as_large_ones(version: AdapterVersion) -> None:
    """As a host tells them of weights near the largest that there are."""
    prompt = pb.ProbedPrompt(largest_change=math.inf, mean_change=math.nan, finite=True)
    effect = pb.AdapterEffect(verdict=pb.AdapterEffect.ACTS, layer_changes=[math.inf, 0.5], prompts=[prompt])
    record_effect(version, effect_json(effect, "local"))
    version.refresh_from_db()
    assert version.effect is not None and json.dumps(version.effect, allow_nan=False)
    # As floats: PostgreSQL gives the largest back as an integer.
    kept = [*version.effect["layer_changes"], version.effect["largest_change"]]
    assert [float(number) for number in kept] == [LARGEST, 0.5, LARGEST]


def test_tokens_that_no_database_stores_are_kept_with_a_replacement(version: AdapterVersion) -> None:
    """A byte-level vocabulary has a token for NUL, which PostgreSQL rejects."""
    prompt = pb.ProbedPrompt(prompt="a", base_tokens=["b", "\0"], adapter_tokens=["\0", "c\0"], finite=True)
    record_effect(version, effect_json(pb.AdapterEffect(verdict=pb.AdapterEffect.ACTS, prompts=[prompt]), "local"))
    version.refresh_from_db()
    assert version.effect is not None and version.effect["prompts"][0]["adapter_tokens"] == ["\ufffd", "c\ufffd"]


def figures(agreeing: int, distance: float) -> pb.AgreementFigures:
    return pb.AgreementFigures(tokens=2, agreeing=agreeing, mean_distance=distance, largest_distance=2 * distance)


def test_agreement_with_the_unquantised_base_is_asked_for_until_it_is_known(
    host: EngineHost,
    version: AdapterVersion,
    engine: FakeEngine,
    queue: Any,
    committing: Any,
) -> None:
    """Of a quantised base. It comes after the version is ready, and nothing waits for it."""
    pending = pb.Agreement(outcome=pb.Agreement.PENDING)
    measured = pb.Agreement(
        outcome=pb.Agreement.DIFFERS,
        reason="By more.",
        base=figures(2, 0.1),
        adapter=figures(1, 0.5),
        prompts=[pb.PromptAgreement(base=figures(2, 0.1), adapter=figures(1, 0.5), adapter_tokens=["Yes", " am"])],
        layer_changes=[0.25, 0.0],
        elapsed_ms=5,
    )
    engine.behaviour.agreements = [pending, pending, measured]
    shown = staged_and_shown(version)
    assert (shown["verdict"], shown["agreement"], shown["effect"]["agreement"]["base"]) == ("acts", "pending", None)
    assert "being measured" in effect_text(shown["effect"])
    tasks.probe_missing("local")
    version.refresh_from_db()
    assert version.agreement == "pending"
    queue.calls.clear()
    with committing():
        tasks.reconcile()
    assert ("placements.probe_missing", ("local",)) in queue.calls
    tasks.probe_missing("local")
    shown = plain(VersionSerializer(queries.get_version(version.tenant, version.adapter.name, version.number)).data)
    assert (shown["agreement"], shown["effect"]["agreement"]["adapter"]["agreeing"]) == ("differs", 1)
    assert shown["effect"]["agreement"]["prompts"][0]["adapter_tokens"] == ["Yes", " am"]
    assert "DIFFERS" in effect_text(shown["effect"]) and "0.50 apart" in effect_text(shown["effect"])
    assert AuditEvent.objects.get(action="version.compare").detail["agreement"] == "differs"
    queue.calls.clear()
    with committing():
        tasks.reconcile()
    assert "placements.probe_missing" not in [task for task, _ in queue.calls]
    assert engine.probe_calls == [version.digest] * 3


def dtype_report(dtype: str, outcome: pb.DtypeReport.Outcome, **more: Any) -> pb.DtypeReport:
    figures = {} if outcome == pb.DtypeReport.PENDING else {"tokens": 77, "agreeing": 75, "mean_distance": 0.0625}
    return pb.DtypeReport(dtype=dtype, outcome=outcome, least_agreeing=0.9, most_distance=0.15, **figures, **more)


def placement_shown(version: AdapterVersion) -> Any:
    shown = plain(VersionSerializer(queries.get_version(version.tenant, version.adapter.name, version.number)).data)
    return shown["placements"][0]


def test_a_host_reports_the_dtype_in_which_it_serves_a_version(
    host: EngineHost, version: AdapterVersion, engine: FakeEngine, queue: Any, committing: Any
) -> None:
    """It is asked until its comparison has ended, once more after a restart, and never for the version to be ready."""
    pending, agrees = (
        dtype_report("bfloat16", pb.DtypeReport.PENDING),
        dtype_report("fp8", pb.DtypeReport.AGREES, pool_pages=2, largest_distance=0.5),
    )
    engine.behaviour.dtype_reports = [pending, pending, agrees]
    shown = staged_and_shown(version)
    assert (shown["adapter_dtype"], shown["placements"][0]["dtype"]) == ("auto", "bfloat16")
    assert shown["placements"][0]["dtype_report"]["outcome"] == "pending"
    assert "local: bfloat16; FP8 is being compared" in dtypes_text(shown)
    tasks.probe_missing("local")
    assert placement_shown(version)["dtype"] == "bfloat16"
    queue.calls.clear()
    with committing():
        tasks.reconcile()
    assert ("placements.probe_missing", ("local",)) in queue.calls
    tasks.probe_missing("local")
    shown = placement_shown(version)
    report = shown["dtype_report"]
    assert (shown["dtype"], report["outcome"], report["tokens"], report["agreeing"]) == ("fp8", "agrees", 77, 75)
    assert (report["least_agreeing"], report["most_distance"], report["largest_distance"]) == (0.9, 0.15, 0.5)
    assert Placement.objects.get().pool_pages == 2
    assert not actions.not_compared("local").exists()
    assert [call.adapter_dtype for call in engine.compare_calls] == ["auto"] * 3
    engine.boot_id = "second"
    with engine_calls(endpoint_of("local")) as calls:
        fleet_actions.record_boot("local", calls.describe())
    actions.requeue_after_boot(EngineHost.objects.get(name="local"))
    assert (placement_shown(version)["dtype"], placement_shown(version)["dtype_report"]) == ("", None)
    reason = "In FP8 log-probabilities move by 0.300 on average."
    engine.behaviour.dtype_reports = [dtype_report("bfloat16", pb.DtypeReport.DIFFERS, reason=reason)]
    stage_all()
    shown = placement_shown(version)
    assert (shown["dtype"], shown["dtype_report"]["reason"]) == ("bfloat16", reason)
    assert reason in dtypes_text({"adapter_dtype": "auto", "placements": [shown]})


def test_a_host_without_time_for_the_comparison_is_asked_later(
    host: EngineHost, version: AdapterVersion, engine: FakeEngine
) -> None:
    engine.behaviour.busy_for_probes = True
    shown = staged_and_shown(version)["placements"][0]
    assert (shown["dtype"], shown["dtype_report"]) == ("", None)
    assert actions.not_compared("local").exists()
    engine.behaviour.busy_for_probes = False
    tasks.probe_missing("local")
    shown = placement_shown(version)
    assert (shown["dtype"], shown["dtype_report"]["outcome"]) == ("bfloat16", "not_measured")
    assert "started without --adapter-dtype fp8" in shown["dtype_report"]["reason"]


def test_each_host_has_its_dtype_and_one_that_is_staged_again_ignores_an_older_report(
    host: EngineHost, version: AdapterVersion, engine: FakeEngine
) -> None:
    engine.behaviour.dtype_reports = [dtype_report("fp8", pb.DtypeReport.AGREES)]
    staged_and_shown(version)
    first = Placement.objects.get()
    second = EngineHost.objects.create(
        name="second", address="unix:/none", boot_id="b", description=host.description, state=HostState.ONLINE
    )
    other = Placement.objects.create(version=version, host=second, phase=StagingPhase.READY, boot_id="b")
    actions.record_dtype(other, dtype_report("float16", pb.DtypeReport.DIFFERS, reason="More."))
    assert [*Placement.objects.values_list("host__name", "dtype")] == [("local", "fp8"), ("second", "float16")]
    actions.stage_again(version)
    for placement in (first, other):
        actions.record_dtype(placement, dtype_report("fp8", pb.DtypeReport.AGREES))
    assert [*Placement.objects.values_list("dtype", flat=True)] == ["", ""]


def test_a_versions_setting_is_followed_by_hosts_pins_and_requests(
    host: EngineHost, version: AdapterVersion, engine: FakeEngine, principal: Principal
) -> None:
    staged_and_shown(version)
    assert resolve_model(version.tenant, "support")[0].adapter_dtype == "auto"
    version = actions.set_adapter_dtype(acting=principal, version=version, dtype="bf16")
    event = AuditEvent.objects.get(action="version.set_dtype")
    assert (event.detail["before"], event.detail["adapter_dtype"]) == ("auto", "bf16")
    assert (version.state, Placement.objects.get().phase) == (VersionState.READY, StagingPhase.QUEUED)
    model = resolve_model(version.tenant, "support")[0]  # it is called meanwhile
    assert (model.adapter_dtype, model.digest) == ("bf16", version.digest)
    stage_all()
    assert [call.adapter_dtype for call in engine.stage_calls] == ["auto", "bf16"]
    assert [call.adapter_dtype for call in engine.compare_calls] == ["auto", "bf16"]
    actions.set_adapter_dtype(acting=principal, version=version, dtype="bf16")
    assert AuditEvent.objects.filter(action="version.set_dtype").count() == 1
    assert resolve_model(version.tenant, "support+support@v1:0.5")[0].adapter_dtype == ""
    AdapterVersion.objects.filter(pk=version.pk).update(state=VersionState.ARCHIVED)
    with pytest.raises(VersionArchivedError):
        actions.set_adapter_dtype(acting=principal, version=version, dtype="fp8")


def test_an_agreement_that_was_not_measured_says_why(
    host: EngineHost, version: AdapterVersion, engine: FakeEngine
) -> None:
    engine.behaviour.agreements = [pb.Agreement(outcome=pb.Agreement.NOT_MEASURED, reason="No memory. Give it more.")]
    shown = staged_and_shown(version)
    assert (shown["agreement"], shown["effect"]["agreement"]["reason"]) == ("not_measured", "No memory. Give it more.")
    assert "not measured: No memory" in effect_text(shown["effect"])
    assert not actions.not_probed("local").exists()
    effect = shown["effect"] | {"agreement": None}
    del effect["agreement"]  # as releases before have written it
    AdapterVersion.objects.filter(pk=version.pk).update(effect=effect)
    version.refresh_from_db()
    shown = plain(VersionSerializer(queries.get_version(version.tenant, version.adapter.name, version.number)).data)
    assert (shown["agreement"], shown["effect"]["agreement"]) == (None, None)


def test_a_first_version_is_live_when_it_was_tried(
    host: EngineHost, version: AdapterVersion, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host had no time at first. Until it has, the version's own name calls it, and the adapter's waits."""
    busy_for = iter([True, False])
    looks: list[str] = []

    def probe(engine: Any, placement: Placement, patience_s: float) -> bool:
        if looks:
            with pytest.raises(ModelLoadingError, match="A host is trying"):
                resolve_model(version.tenant, version.adapter.name)
            assert resolve_model(version.tenant, f"{version.adapter.name}@v1")[0].version == version
        looks.append(placement.host.name)
        return False if next(busy_for) else tried(engine, placement, patience_s)

    tried = tasks.probe
    monkeypatch.setattr(tasks, "probe", probe)
    assert staged_and_shown(version)["aliases"] == ["live"]
    assert len(looks) == 2
    looks.clear()
    busy_for = iter([True])  # with a live version nothing waits for another one's trial
    assert staged_and_shown(add_version(version.tenant, "support", 2))["verdict"] is None


def test_nothing_waits_for_a_trial_for_ever(host: EngineHost, version: AdapterVersion, engine: FakeEngine) -> None:
    """The worker died between the version's being ready and its trial."""
    mark_version_ready(version, to_be_tried=True)
    assert actions.settle_untried(timedelta(minutes=1)) == 0
    assert not Alias.objects.exists()
    assert actions.settle_untried(timedelta(0)) == 1
    assert Alias.objects.get().version == version
    assert actions.settle_untried(timedelta(0)) == 0


def test_a_busy_host_delays_nothing_and_is_asked_again(
    host: EngineHost,
    version: AdapterVersion,
    engine: FakeEngine,
    queue: Any,
    committing: Any,
) -> None:
    engine.behaviour.busy_for_probes = True
    shown = staged_and_shown(version)
    assert (shown["verdict"], shown["effect"], shown["aliases"]) == (None, None, ["live"])
    assert "not tried yet" in effect_text(None)
    tasks.probe_missing("local")
    version.refresh_from_db()
    assert version.verdict is None
    queue.calls.clear()
    with committing():
        tasks.reconcile()
    assert ("placements.probe_missing", ("local",)) in queue.calls
    engine.behaviour.busy_for_probes = False
    tasks.probe_missing("local")
    version.refresh_from_db()
    assert version.verdict == "acts"
    queue.calls.clear()
    with committing():
        tasks.reconcile()
    assert "placements.probe_missing" not in [task for task, _ in queue.calls]
