"""Clocks that differ or step: every reader of a wall clock is in a list, and what it compares survives a jump."""

from __future__ import annotations

import ast
import os
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.db import transaction
from django.utils import timezone

import control_plane
from control_plane.adapters.imports.follows import _claim as claim_follow
from control_plane.adapters.imports.models import HubFollow
from control_plane.adapters.registry.models import Adapter, AdapterVersion
from control_plane.adapters.uploads import actions as uploads
from control_plane.adapters.uploads import spool
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.billing.usage import recovery, request_ids
from control_plane.billing.usage.models import ApiEndpoint, UsageEvent
from control_plane.celery import app
from control_plane.console.live.presence import EXPIRY_S, RedisPresence
from control_plane.console.webhooks import delivery as webhooks
from control_plane.console.webhooks.models import Delivery, Endpoint
from control_plane.core.config import Rate
from control_plane.core.errors import DeletionPausedError
from control_plane.core.jobs import claims, clock_watch, clocks
from control_plane.core.jobs.models import ClockRecord
from control_plane.core.redis_client import client
from control_plane.fleet.hosts import service_gaps
from control_plane.fleet.hosts.actions import record_status
from control_plane.fleet.hosts.leader_election import RedisLease
from control_plane.fleet.hosts.models import EngineHost, ServiceGap
from control_plane.fleet.joining.join_tokens import JoinTokenError, create_token, shown_tokens, usable_token
from control_plane.fleet.placements import actions as placements
from control_plane.fleet.placements.models import Placement
from control_plane.gateway.batches.models import Batch, BatchState
from control_plane.gateway.dispatch.idempotency_store import AnswerLimits, Name, RedisStore, StoredAnswer
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.accounts.attempts import RedisAttempts
from control_plane.identity.accounts.sessions import SessionStore
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.models import Invitation
from lora_engine.wire import engine_pb2 as pb

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]

REDIS_URL = os.environ.get("LORIKEET_TEST_REDIS_URL", "")
SOURCE = Path(control_plane.__path__[0])
JUMPS = [timedelta(hours=-1), timedelta(hours=1), timedelta(days=-40), timedelta(days=40)]
JUMP_IDS = ["-1h", "+1h", "-40d", "+40d"]
jumps = pytest.mark.parametrize("jump", JUMPS, ids=JUMP_IDS)

# -- the list ----------------------------------------------------------------------------------------------------------

SHOWN = "only kept and shown"
RECORDED = "when something happened, kept and shown; nothing is deleted or begun by it"
READ = "decides what a request may use, at the moment of the request: right again as soon as the clock is"
GUARDED = "deletes by the database's clock, not while it is in doubt"
DATABASE = "compares the database's clock with itself"
REDIS = "compares Redis's clock with itself; what is later than now is dropped or cut"

# Every module that reads a wall clock, with what it compares. A new one is added here with the answer to: whose clock
# wrote the other side, and what happens when one of the two is an hour or 40 days off?
CLOCK_READERS = {
    "core/secrets/rotation.py": "days of an overlap, and the age of a file on the machine that wrote it",
    "identity/accounts/actions.py": RECORDED,
    "identity/accounts/attempts.py": REDIS,
    "identity/accounts/confirmation.py": DATABASE,
    "identity/second_factor/actions.py": "codes of people's devices, by the database's clock; the rest is recorded",
    "identity/second_factor/recovery_codes.py": RECORDED,
    "identity/accounts/identities.py": DATABASE + "; when an address was proven is only recorded",
    "identity/accounts/oidc.py": "the provider's clock with a web process's, by the leeway of its tokens",
    "identity/accounts/passwords.py": RECORDED,
    "identity/accounts/sessions.py": DATABASE,
    "identity/accounts/sign_ins.py": DATABASE + "; the last use is only shown",
    "identity/accounts/tasks.py": GUARDED,
    "adapters/registry/aliases.py": "begin of a canary, by the database's clock as the requests it is judged by",
    "adapters/registry/archiving.py": GUARDED,
    "adapters/artifacts/artifact_gc.py": GUARDED,
    "adapters/imports/follows.py": DATABASE,
    "adapters/imports/hub_models.py": "database's with a web process's; later than now counts as long ago",
    "adapters/uploads/models.py": DATABASE,
    "adapters/uploads/actions.py": GUARDED + "; files by the file system's clock, which must agree",
    "adapters/uploads/resumable.py": GUARDED,
    "adapters/registry/versions.py": RECORDED,
    "console/administration/actions.py": RECORDED,
    "console/monitoring/collectors.py": "ages of jobs by the database's clock; only shown",
    "identity/audit/audit_csv.py": SHOWN,
    "gateway/batches/actions.py": GUARDED + "; a batch does not expire meanwhile",
    "gateway/batches/files.py": GUARDED + "; reading: " + READ,
    "gateway/conversations/actions.py": GUARDED + "; reading: " + READ,
    "adapters/evaluations/actions.py": GUARDED + "; an evaluation does not fail meanwhile",
    "core/events/ring.py": "numbers of a new ring begin at the clock; a client with an unknown number starts over",
    "fleet/hosts/watcher.py": "tells how far a host's clock is from the database's",
    "fleet/hosts/metrics.py": "ages by the database's clock, of what a watcher's clock wrote; only shown",
    "fleet/hosts/actions.py": RECORDED + "; a restart's deadline by the database's clock",
    "fleet/joining/authority.py": "certificates begin ten minutes ago, for hosts whose clock is behind",
    "fleet/base_models/demand.py": DATABASE,
    "fleet/base_models/actions.py": RECORDED,
    "fleet/joining/join_tokens.py": DATABASE + "; when one was withdrawn is only recorded",
    "fleet/joining/joining.py": READ + "; a certificate is renewed a third of its life early",
    "fleet/hosts/service_gaps.py": GUARDED,
    "gateway/dispatch/generation.py": "a request's time, by the database's clock as of its last reading",
    "gateway/dispatch/idempotency_store.py": REDIS,
    "gateway/openai/batch_views.py": READ,
    "gateway/recording/refusals.py": "a refusal's minute, by the database's clock as of its last reading",
    "gateway/recording/spans.py": SHOWN,
    "gateway/responses/response_writers.py": SHOWN,
    "core/jobs/claims.py": DATABASE + "; a claim longer than any is none",
    "core/jobs/clock_watch.py": "tells how far the clocks are apart",
    "core/jobs/clocks.py": "tells how far the clocks are apart",
    "core/jobs/expiry.py": REDIS + "; beat's and workers' clocks do not meet",
    "core/jobs/fair_queue.py": "a tenant that was served by a clock that is ahead waits behind others that wait",
    "identity/keys/actions.py": DATABASE + "; when a key was revoked is only recorded",
    "identity/keys/last_used.py": SHOWN,
    "identity/keys/models.py": DATABASE,
    "identity/keys/queries.py": DATABASE + "; which keys a list shows as usable",
    "console/live/presence.py": REDIS,
    "billing/quotas/reconciliation.py": DATABASE + "; which notices of the day before are sent",
    "identity/members/invitations.py": DATABASE + "; when one ended is only recorded",
    "identity/members/memberships.py": "when an invitation was revoked is only recorded",
    "identity/members/tasks.py": DATABASE,
    "fleet/placements/actions.py": DATABASE + "; a pause longer than any is over",
    "fleet/placements/demand.py": DATABASE,
    "fleet/joining/serializers.py": SHOWN,
    "fleet/hosts/api/page_maps.py": SHOWN,
    "fleet/placements/payloads.py": SHOWN,
    "fleet/placements/pins.py": RECORDED,
    "fleet/placements/prefixes.py": RECORDED,
    "fleet/placements/queries.py": SHOWN,
    "fleet/hosts/tasks.py": "a restart's deadline by the database's clock",
    "fleet/placements/tasks.py": "spans of a trace",
    "fleet/base_models/api/wakefulness.py": DATABASE,
    "billing/archives/archiving.py": GUARDED,
    "billing/prices/actions.py": READ,
    "billing/quotas/budgets.py": READ,
    "billing/quotas/limiter_factory.py": "the limiter's clock, or this process's while Redis is away",
    "billing/quotas/memory_limiter.py": "this process's clock with itself; what is later than now is dropped or cut",
    "billing/quotas/redis_limiter.py": REDIS,
    "billing/quotas/usage_against_limits.py": SHOWN,
    "billing/refusals/actions.py": GUARDED,
    "billing/reports/exports.py": GUARDED + "; schedules wait meanwhile",
    "billing/reports/models.py": DATABASE,
    "billing/reports/usage_csv.py": READ,
    "gateway/transcripts/actions.py": GUARDED,
    "gateway/transcripts/queries.py": READ,
    "billing/usage/actions.py": GUARDED,
    "billing/usage/aggregation.py": GUARDED + "; the rest is shown",
    "billing/usage/ledger_archive.py": "requests older than eight weeks; no younger ones are archived",
    "billing/usage/models.py": DATABASE,
    "billing/usage/queries.py": READ,
    "billing/usage/recovery.py": "database's with the host's: a record later than now counts as of now",
    "billing/usage/rollup_check.py": SHOWN,
    "billing/usage/series.py": READ,
    "billing/usage/storage.py": "bills an hour by the database's clock, not while it is in doubt",
    "billing/usage/sums.py": READ,
    "billing/usage/time_series.py": GUARDED,
    "console/webhooks/actions.py": RECORDED + "; the next try by the database's clock",
    "console/webhooks/delivery.py": DATABASE + "; a pause longer than any is over",
    "console/webhooks/events.py": DATABASE,
    "console/webhooks/models.py": DATABASE,
    "console/webhooks/tasks.py": GUARDED,
}
_READS = re.compile(
    r"timezone\.now|\btime\.time(_ns)?\(|datetime\.now|\bNow\(\)|'TIME'|redis\.time\(|client\.time\("
    r"|database_time|deletion_time|clocks\.(now|due|is_trusted|check)\b"
)


def product_files() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        if not {"migrations", "management", "demo"} & set(path.relative_to(SOURCE).parts):
            yield str(path.relative_to(SOURCE)), path.read_text()


def test_every_reader_of_a_wall_clock_is_in_the_list() -> None:
    readers = {name for name, text in product_files() if any(map(_READS.search, _code_lines(text)))}
    assert readers - CLOCK_READERS.keys() == set(), "add them to CLOCK_READERS with what they compare"
    assert CLOCK_READERS.keys() - readers == set(), "these read no clock any more"


def _code_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.lstrip().startswith(("#", "from ", "import "))]


# Deletes by time what another row replaces in the same transaction or what is made again by itself.
UNGUARDED = {
    "billing/usage/aggregation.py _add_up_tenants": "sums that are added up again in the same transaction",
}


def test_what_deletes_by_age_asks_whether_the_clock_is_trusted() -> None:
    """A function that deletes, and compares with a time, takes the time from `clocks`."""
    compares = re.compile(r"__(lt|lte)=|st_mtime|\bbefore: float")
    deletes = re.compile(r"\.delete\(\)|rmtree\(|\.unlink\(|forget_after_commit\(")
    unguarded = []
    for name, text in product_files():
        if not deletes.search(text):
            continue
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            source = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            if compares.search(source) and deletes.search(source):
                guarded = re.search(r"deletion_time\(|is_trusted\(\)|\bnow: datetime\b|\bbefore: \w+", source)
                if not guarded and f"{name} {node.name}" not in UNGUARDED:
                    unguarded.append(f"{name} {node.name}")
    assert unguarded == []


# -- deletion ----------------------------------------------------------------------------------------------------------

# These talk to hosts and other servers. What they delete is made again by itself, and none of it for its age.
ELSEWHERE = {
    "uploads.validate_next", "imports.poll_follows", "placements.stage_next", "placements.reconcile",
    "placements.place_by_demand", "usage.recover", "webhooks.deliver_next", "reports.write_next", "evaluations.tend",
}  # fmt: skip
PERIODIC = sorted({entry["task"] for entry in app.conf.beat_schedule.values()} - ELSEWHERE)


class Machine:
    """The clocks of this process and of the database, which a test moves."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.process, self.database, self.passed_s = timedelta(0), timedelta(0), 0.0
        now, seconds, steady_s, at = timezone.now, time.time, clocks._steady_s, clocks.database_time
        patch.setattr(timezone, "now", lambda: now() + self.process + self._passed)
        patch.setattr(time, "time", lambda: seconds() + (self.process + self._passed).total_seconds())
        patch.setattr(clocks, "_steady_s", lambda: steady_s() + self.passed_s)
        # On SQLite the database's clock is the process's.
        if clocks.connection.vendor == "postgresql":
            patch.setattr(clocks, "database_time", lambda: at() + self.database + self._passed)
        else:
            patch.setattr(clocks, "database_time", lambda: now() + self.process + self._passed)
        patch.setattr(spool, "file_time", lambda: None)

    @property
    def _passed(self) -> timedelta:
        return timedelta(seconds=self.passed_s)

    def jump_both(self, jump: timedelta) -> None:
        """One machine for everything, whose clock steps."""
        self.process += jump
        self.database += jump


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def counts() -> dict[str, int]:
    found = {model._meta.label: model._default_manager.count() for model in apps.get_models()}
    found["versions that are not deleted"] = AdapterVersion.objects.exclude(state="deleted").count()
    found["adapters that are not deleted"] = Adapter.objects.filter(deleted_at=None).count()
    found["uploads that arrive"] = Upload.objects.filter(state=UploadState.ARRIVING).count()
    return found


def lost(before: dict[str, int]) -> set[str]:
    return {label for label, count in counts().items() if count < before[label]}


@contextmanager
def undone(machine: Machine) -> Iterator[None]:
    """Undo what the block does to the database and the clocks."""
    last = clocks._last
    with transaction.atomic():
        yield
        transaction.set_rollback(True)
    machine.process = machine.database = timedelta(0)
    machine.passed_s, clocks._last, clocks._reported_s = 0.0, last, None


def run_everything() -> None:
    for name in PERIODIC:
        app.tasks[name]()


@pytest.fixture
def kept(furnished: Any, acme: Any, lorikeet: Any) -> dict[str, int]:
    """One of everything, and files of an upload that nobody sends to at the moment."""
    from control_plane.adapters.uploads.resumable import begin_resumable  # its own imports are slow

    begin_resumable(acting=acme.principal(), name="half", description="", file_name="a.zip", size=100)
    app.loader.import_default_modules()
    clocks.check()
    return counts()


def test_without_the_guard_the_walk_sees_what_is_deleted(
    kept: dict[str, int], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clocks, "check", lambda: (clocks.database_time() + timedelta(days=500), ""))
    run_everything()
    gone = lost(kept)
    assert gone >= {
        "adapters that are not deleted", "versions that are not deleted", "uploads that arrive",
        "transcripts.Transcript", "batches.StoredFile", "webhooks.Event", "reports.Export", "accounts.SignIn",
    }  # fmt: skip


def test_a_wrong_clock_of_a_process_deletes_nothing(kept: dict[str, int], machine: Machine) -> None:
    for jump in JUMPS:
        with undone(machine):
            machine.process += jump
            run_everything()
            assert lost(kept) == set(), jump


def test_a_step_of_the_databases_clock_deletes_nothing(kept: dict[str, int], machine: Machine) -> None:
    """Also where the process's clock steps along, since both are of one machine, and after a restart."""
    for jump in JUMPS:
        for restarts in (False, True):
            with undone(machine):
                machine.jump_both(jump)
                clocks._last = None if restarts else clocks._last
                run_everything()
                assert lost(kept) == set(), jump


def test_nothing_is_lost_when_the_clock_comes_right_again(kept: dict[str, int], machine: Machine) -> None:
    for jump in JUMPS:
        with undone(machine):
            machine.jump_both(jump)
            run_everything()
            machine.passed_s += 77
            machine.jump_both(-jump)
            run_everything()
            wait(machine, clocks.SETTLE + clocks.REPORTED_FOR + timedelta(minutes=1), 60.0)
            assert clocks.is_trusted(), jump
            run_everything()
            assert lost(kept) <= {"accounts.SignIn"}, "its session has never been there"


# -- the guard ---------------------------------------------------------------------------------------------------------


def wait(machine: Machine, passes: timedelta, every_s: float = 30.0) -> None:
    """Let time pass with the readings that a running installation makes."""
    for _ in range(int(passes.total_seconds() // every_s)):
        machine.passed_s += every_s
        clocks.check()


def test_clocks_that_agree_are_trusted(db: None, machine: Machine) -> None:
    for _ in range(3):
        assert abs(clocks.deletion_time() - timezone.now()) < timedelta(seconds=30)
        machine.passed_s += 45
    assert ClockRecord.objects.count() == 1


@jumps
def test_deletion_goes_on_an_hour_after_a_step(db: None, machine: Machine, jump: timedelta, caplog: Any) -> None:
    clocks.deletion_time()
    machine.jump_both(jump)
    for _ in range(2):
        with pytest.raises(DeletionPausedError, match=r"stepped|later|back"):
            clocks.deletion_time()
    assert [record.levelname for record in caplog.records if "Deletion by age is paused" in record.message] == ["ERROR"]
    wait(machine, clocks.SETTLE - timedelta(minutes=5), 300.0)
    assert not clocks.is_trusted()
    wait(machine, timedelta(minutes=6) + clocks.REPORTED_FOR)
    clocks.deletion_time()


def test_a_stop_of_ten_minutes_counts_as_a_step(db: None, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks.deletion_time()
    machine.passed_s += clocks.MAX_UNREAD.total_seconds() + 1
    monkeypatch.setattr(clocks, "_last", None)
    with pytest.raises(DeletionPausedError, match="after the workers were stopped"):
        clocks.deletion_time()


@pytest.mark.parametrize("drift_s", [-59, -5, 5, 59])
def test_less_than_a_minute_is_no_step(db: None, machine: Machine, drift_s: int) -> None:
    clocks.deletion_time()
    machine.jump_both(timedelta(seconds=drift_s))
    clocks.deletion_time()


@pytest.mark.services
@jumps
def test_the_difference_is_named_and_ends_by_itself(db: None, machine: Machine, jump: timedelta) -> None:
    clocks.deletion_time()
    machine.process += jump
    named = f"{abs(jump)} {'ahead' if jump > timedelta(0) else 'behind'}"
    with pytest.raises(DeletionPausedError, match=named):
        clocks.deletion_time()
    machine.process -= jump
    with pytest.raises(DeletionPausedError, match=named):
        clocks.deletion_time()  # as another process that is right would: it hears the report
    wait(machine, clocks.REPORTED_FOR)
    clocks.deletion_time()


@pytest.mark.services
@jumps
def test_the_time_of_a_request_is_the_databases(db: None, machine: Machine, jump: timedelta) -> None:
    clocks.check()
    machine.process += jump
    machine.passed_s += 20
    assert abs(clocks.now() - clocks.database_time()) < timedelta(seconds=20)


@jumps
def test_a_file_system_whose_clock_is_wrong_deletes_no_files(
    db: None, monkeypatch: pytest.MonkeyPatch, jump: timedelta
) -> None:
    uploads.file_deletion_time()
    monkeypatch.setattr(spool, "file_time", lambda: datetime.now(UTC) + jump)
    with pytest.raises(DeletionPausedError, match="artifact file system"):
        uploads.sweep()


async def test_the_watch_sets_the_metrics(transactional_db: None) -> None:
    await clock_watch.compare()
    assert clock_watch.PAUSED._value.get() == 0
    assert abs(clock_watch.AHEAD.labels("database")._value.get()) < 60


# -- what waits until a time -------------------------------------------------------------------------------------------


def test_webhooks_are_sent_after_any_jump(furnished: Any) -> None:
    """Written by a clock that was ahead or behind: due at once, or after the longest usual pause."""
    for jump in JUMPS:
        now = clocks.database_time()
        Delivery.objects.update(next_attempt_at=now + jump)
        Endpoint.objects.update(rests_until=now + jump)
        pause = jump if timedelta(0) < jump <= webhooks.PAUSES[-1] else timedelta(0)
        assert webhooks._ready(now + pause).exists(), jump


def test_placements_are_staged_after_any_jump(furnished: Any) -> None:
    EngineHost.objects.update(state="online")
    for jump in JUMPS:
        at = clocks.database_time() + jump + timedelta(minutes=1 if jump > timedelta(0) else 0)
        Placement.objects.update(phase="queued", next_attempt_at=at)
        assert placements._waiting().exists(), jump


def test_claims_end_after_any_jump(furnished: Any) -> None:
    placement = Placement.objects.all()[0]
    rows = Placement.objects.filter(pk=placement.pk)
    for jump in JUMPS:
        claims.take(placement)
        assert not rows.filter(claims.unclaimed()).exists() and rows.filter(claims.claimed()).exists()
        rows.update(claimed_until=rows.get().claimed_until + jump)
        assert rows.filter(claims.unclaimed()).exists() and not rows.filter(claims.claimed()).exists(), jump


def test_followed_branches_are_checked_after_any_jump(furnished: Any) -> None:
    for jump in JUMPS:
        HubFollow.objects.update(next_check_at=clocks.database_time() + jump)
        assert (claim_follow() is not None) == (jump != timedelta(hours=1)), "an hour is within its usual pause"


def test_a_batch_does_not_expire_by_a_wrong_clock(furnished: Any, machine: Machine) -> None:
    from control_plane.gateway.batches.actions import state_of

    batch = Batch.objects.filter(state=BatchState.VALIDATING)[0]
    clocks.check()
    for jump in JUMPS:
        with undone(machine):
            claims.take(batch)
            machine.jump_both(jump)
            assert state_of(batch) != BatchState.EXPIRED, jump


@pytest.mark.services
@jumps
def test_keys_sessions_invitations_and_join_tokens_expire_by_the_databases_clock(
    acme: Any, machine: Machine, jump: timedelta
) -> None:
    clocks.check()
    machine.process += jump
    _, secret = acme.key(expires_at=clocks.database_time() + timedelta(minutes=10))
    acme.client().post(acme.path("invitations"), {"email": "new@acme.example", "role": "viewer"}, format="json")
    session = SessionStore()
    session["a"] = 1
    session.save()
    _, token = create_token(actor=SYSTEM, host_name="", lifetime=timedelta(minutes=10))

    def can_join() -> bool:
        try:
            with transaction.atomic():
                return usable_token(token, "key") in shown_tokens()
        except JoinTokenError:
            return False

    def valid() -> list[bool]:
        key = ApiKey.objects.get(prefix=secret.split("_")[1])
        invitation = Invitation.objects.get(email="new@acme.example")
        is_open = invitation.is_open_at(clocks.database_time())
        return [key.usable_at(), can_join(), is_open, SessionStore(session.session_key).get("a") == 1]

    assert valid() == [True, True, True, True]
    machine.passed_s += 700
    assert valid() == [False, False, True, True]
    machine.passed_s += 8 * 86_400
    assert valid() == [False, False, False, True]
    machine.passed_s += settings.SESSION_COOKIE_AGE
    assert valid() == [False, False, False, False]


@jumps
def test_gaps_of_service_stay(host: EngineHost, machine: Machine, jump: timedelta) -> None:
    service_gaps.record("local", pb.ServiceGap(gap=1.0, bound=2.0, ahead="a", behind="b"))
    clocks.check()
    machine.jump_both(jump)
    service_gaps.record("local", pb.ServiceGap(gap=1.0, bound=2.0, ahead="a", behind="b"))
    assert ServiceGap.objects.filter(host=host).count() == 4


@jumps
def test_usage_of_a_host_whose_clock_is_wrong_is_counted(
    acme: Any, host: EngineHost, monkeypatch: pytest.MonkeyPatch, jump: timedelta
) -> None:
    from control_plane.identity.access.principal import Principal

    request_id = request_ids.make(Principal.of_key(acme.key()[0]), ApiEndpoint.CHAT, streamed=True)
    ended = time.time() + jump.total_seconds() - 30
    record = pb.UsageRecord(
        request_id=request_id, tenant=str(acme.tenant.pk), prompt_tokens=1, completion_tokens=1, outcome="finished",
        submitted_unix=ended - 1, finished_unix=ended, seq=1,
    )  # fmt: skip
    pages = [[record], []]
    acknowledged: list[str] = []
    engine = SimpleNamespace(pull_usage=lambda *_: pages.pop(0), acknowledge=acknowledged.extend)

    @contextmanager
    def calls(_: object) -> Iterator[Any]:
        yield engine

    monkeypatch.setattr(recovery, "engine_calls", calls)
    assert recovery.recover_usage(SimpleNamespace(name="local")) == 1  # type: ignore[arg-type]
    event = UsageEvent.objects.get(request_id=request_id)
    assert event.created_at <= clocks.database_time() and acknowledged == [request_id]


@pytest.mark.parametrize("ahead_s", [3600.0, -3600.0])
def test_usage_from_a_journal_is_dated_by_the_database_if_the_host_s_difference_is_known(
    acme: Any, host: EngineHost, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    from control_plane.identity.access.principal import Principal

    record_status("local", pb.HostStatus(boot_id="b", unix_time=time.time() + ahead_s), clock_ahead_s=ahead_s)
    principal, now = Principal.of_key(acme.key()[0]), clocks.database_time().timestamp()
    kept, left = (request_ids.make(principal, ApiEndpoint.CHAT, streamed=True) for _ in range(2))
    records = [
        pb.UsageRecord(
            request_id=request_id, tenant=str(acme.tenant.pk), prompt_tokens=1, completion_tokens=1, seq=seq,
            outcome="finished", submitted_unix=now + ahead_s - ago_s - 1, finished_unix=now + ahead_s - ago_s,
        )
        for seq, (request_id, ago_s) in enumerate([(kept, 100), (left, 2)], 1)
    ]  # fmt: skip
    pages = [records, []]

    @contextmanager
    def calls(_: object) -> Iterator[Any]:
        yield SimpleNamespace(pull_usage=lambda *_: pages.pop(0), acknowledge=lambda _: None)

    monkeypatch.setattr(recovery, "engine_calls", calls)
    assert recovery.recover_usage(SimpleNamespace(name="local")) == 1, "the last one is left to its web process"  # type: ignore[arg-type]
    event = UsageEvent.objects.get(request_id=kept)
    assert abs(event.created_at.timestamp() - (now - 101)) < 2


# -- Redis -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def redis() -> Any:
    with client(REDIS_URL) as made:
        yield made


@pytest.mark.services
@jumps
def test_attempts_to_sign_in_survive_a_jump_of_redis(redis: Any, jump: timedelta) -> None:
    name, rate = uuid.uuid4().hex, Rate(3, 60)
    now_ms, ahead_ms = redis.time()[0] * 1000, int(jump.total_seconds() * 1000)
    redis.zadd(f"lorikeet:attempts:{name}", {f"a{index}": now_ms + ahead_ms + index for index in range(3)})
    attempts = RedisAttempts(REDIS_URL)
    assert [attempts.take(name, rate) for _ in range(3)] == [0, 0, 0]
    assert 0 < attempts.take(name, rate) <= 60


@pytest.mark.services
def test_leases_claims_and_presence_end_in_their_usual_time_after_redis_stepped_back(redis: Any) -> None:
    """Keys of a server whose clock stepped back live as much longer; what would wait for them cuts their life."""
    name = uuid.uuid4().hex
    redis.set(f"lorikeet:lease:{name}", "dead", px=3_610_000)
    lease = RedisLease(REDIS_URL, name, 10.0)
    assert not lease.hold()
    assert 0 < redis.pttl(f"lorikeet:lease:{name}") <= 10_000

    tenant = uuid.uuid4()
    redis.zadd("lorikeet:live:present", {str(tenant): redis.time()[0] + 3600 + EXPIRY_S})
    presence = RedisPresence(REDIS_URL)
    assert tenant not in presence.tenants()
    presence.refresh(tenant)
    assert tenant in presence.tenants()


@pytest.mark.services
async def test_idempotency_keys_after_redis_stepped_back(redis: Any) -> None:
    name, store = Name(uuid.uuid4().hex, "d"), RedisStore(REDIS_URL)
    mine = StoredAnswer("f", "me")
    try:
        assert await store.claim(name, StoredAnswer("f", "dead"), 60) is None
        redis.expire(store._key(name), 3660)
        assert await store.claim(name, mine, 60) is not None
        assert redis.ttl(store._key(name)) <= 60
        redis.delete(store._key(name))

        answers = f"{store._prefix(name)}answers"
        room = AnswerLimits(seconds=600, answers=2, bytes=1000)
        for digest in "ab":
            await store.keep(Name(name.tenant, digest), StoredAnswer("f", "me", "t", b"x"), room)
        redis.zadd(answers, {member: redis.time()[0] + 3600 for member in redis.zrange(answers, 0, -1)})
        await store.keep(Name(name.tenant, "c"), StoredAnswer("f", "me", "t", b"x"), room)
        await store.keep(Name(name.tenant, "d"), StoredAnswer("f", "me", "t", b"x"), room)
        assert sorted(redis.zrange(answers, 0, -1)) == [b"1 c", b"1 d"]
    finally:
        await store.close()
