"""One tenant's background work delays another's by one job per slot at most, and a worker's death by seconds.

A "slot" is what a worker's thread does between two looks into its queue: one call of the task.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
import uuid
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import OperationalError
from django.db.models import Model
from django.utils import timezone
from lorikeet_testing.concurrent import while_another_commits
from lorikeet_testing.peft_files import adapter_files
from lorikeet_testing.platform_fixtures import ScriptedChild
from lorikeet_testing.seed import add_version
from lorikeet_testing.web import eventually

from control_plane.adapters.artifacts import artifact_gc
from control_plane.adapters.uploads import actions as uploads
from control_plane.adapters.uploads import validation_child, validation_job, validation_sandbox
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.adapters.uploads.resumable import begin_resumable
from control_plane.adapters.uploads.tasks import validate_next
from control_plane.billing.reports import exports
from control_plane.billing.reports.models import Export, Grain
from control_plane.billing.usage.sums import last_days
from control_plane.celery import app
from control_plane.console.webhooks import actions as webhooks
from control_plane.console.webhooks import delivery
from control_plane.console.webhooks.events import publish
from control_plane.console.webhooks.models import Delivery, Endpoint, Event, EventType
from control_plane.core.http import egress
from control_plane.core.jobs import claims
from control_plane.core.jobs.models import Claimable, Queue, QueuePosition
from control_plane.fleet.hosts.models import EngineHost, HostState
from control_plane.fleet.placements import actions as placements
from control_plane.fleet.placements.models import Placement
from lora_engine.wire import engine_pb2 as pb

pytestmark = pytest.mark.django_db


def allow(settings: Any, **changed: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update=changed)


def expire(rows: type[Model]) -> None:
    """As if the workers had been killed a while ago."""
    rows._default_manager.update(claimed_until=timezone.now() - timedelta(seconds=1))


# -- uploads -------------------------------------------------------------------------------------------------------


def received(org: Any, number: int = 1) -> None:
    for _ in range(number):
        Upload.objects.create(tenant=org.tenant, adapter_name="x", bytes=1, files=[], folder="/nowhere")


def begin() -> str | None:
    """The tenant whose upload a slot takes."""
    claimed = uploads.claim_next()
    return claimed[0].tenant.slug if claimed else None


def end_one(slug: str) -> None:
    row = Upload.objects.filter(tenant__slug=slug, state=UploadState.VALIDATING).first()
    assert row is not None
    uploads.refuse_upload(row, uploads.GIVEN_UP, None)


def test_with_one_slot_tenants_take_turns(acme: Any, globex: Any, host: Any) -> None:
    received(acme, 6)
    assert begin() == "acme"
    received(globex, 2)
    order = []
    for slug in ["acme", "globex", "acme", "globex"]:
        end_one(slug)
        order.append(begin())
    assert order == ["globex", "acme", "globex", "acme"], "one upload of acme in between at most"
    end_one("acme")
    assert begin() == "acme", "nobody waits for those who have nothing to do"


def test_a_tenant_has_so_many_checked_at_once(acme: Any, globex: Any, host: Any, settings: Any) -> None:
    allow(settings, tenant_validations=2)
    received(acme, 5)
    assert [begin() for _ in range(3)] == ["acme", "acme", None], "a third slot stays free"
    received(globex)
    assert begin() == "globex"
    end_one("acme")
    assert begin() == "acme"


def test_who_has_fewer_running_comes_first(acme: Any, globex: Any, host: Any, settings: Any) -> None:
    allow(settings, tenant_validations=3)
    received(acme, 5)
    assert [begin(), begin()] == ["acme", "acme"]
    received(globex, 5)
    assert [begin(), begin(), begin(), begin()] == ["globex", "globex", "acme", "globex"]


def test_two_hundred_of_one_tenant(acme: Any, globex: Any, host: Any, django_assert_max_num_queries: Any) -> None:
    received(acme, 200)
    assert begin() == "acme"
    received(globex)
    with django_assert_max_num_queries(25):
        assert begin() == "globex"


def test_a_slot_that_did_something_asks_for_the_next(acme: Any, host: Any, queue: Any, committing: Any) -> None:
    """Otherwise a tenant's further uploads, whose own slots found it busy, would wait for the clock."""
    send(acme, committing)
    queue.calls.clear()
    with committing():
        validate_next()
    assert "validate_next" in queue.names()
    queue.calls.clear()
    with committing():
        validate_next()
    assert queue.names() == [], "nothing to do: no endless chain"


def send(org: Any, committing: Any, seed: int = 0) -> str:
    form = [SimpleUploadedFile(file, content) for file, content in adapter_files(seed=seed).items()]
    with committing():
        answer = org.client().post(org.path("uploads"), {"name": "support", "files": form}, format="multipart")
    assert answer.status_code == 202, answer.content
    return str(answer.json()["id"])


@pytest.mark.usefixtures("queue")
def test_the_checks_of_a_tenant_with_many_uploads_are_nice(
    acme: Any, globex: Any, host: Any, committing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two cores, another tenant's first check has one to itself."""
    asked: list[int] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["nice"])
        return {"problem": uploads.GIVEN_UP}

    monkeypatch.setattr(validation_job, "start_child", lambda: ScriptedChild(answer))
    for org in (acme, acme, globex):
        send(org, committing)
    told: dict[str, list[int]] = {"acme": [], "globex": []}

    claim_next = uploads.claim_next

    def decide(claimed: Any) -> None:
        monkeypatch.setattr(uploads, "claim_next", lambda: claimed)
        validation_job.validate_next()
        told[claimed[0].tenant.slug].append(asked.pop())

    # One of each tenant, whichever comes first: neither has had a turn.
    for claimed in [claim_next(), claim_next()]:
        decide(claimed)
    decide(claim_next())
    assert told == {"acme": [validation_job.FURTHER_NICE, validation_job.NICE], "globex": [validation_job.NICE]}


def test_a_check_has_its_priority_among_sessions_too() -> None:
    """It is a session of its own, among which Linux shares the processor before it looks at `nice`."""
    code = "from control_plane.adapters.uploads.validation_sandbox import lower_priority as lower; lower(3); lower(4); "
    code += "import os, pathlib; group = pathlib.Path('/proc/self/autogroup'); "
    code += "print(os.nice(0), group.read_text() if group.exists() else f'nice {os.nice(0)}')"
    child = subprocess.run([sys.executable, "-c", code], start_new_session=True, capture_output=True, text=True)
    nice = os.nice(0) + 7  # of a run that gives way to other work, too
    assert child.stdout.startswith(f"{nice} ") and child.stdout.rstrip().endswith(f"nice {nice}"), child.stderr


def test_a_check_runs_after_other_processes_that_wake_up() -> None:
    code = "from control_plane.adapters.uploads.validation_sandbox import lower_priority as lower; lower(1); "
    code += "import os; print(os.sched_getscheduler(0) == os.SCHED_BATCH)"
    child = subprocess.run([sys.executable, "-c", code], start_new_session=True, capture_output=True, text=True)
    assert child.stdout == "True\n", child.stderr


def test_workers_that_are_processes_give_way_to_requests() -> None:
    """And those of a web process, which would take it along, do not."""
    code = "import os; from control_plane.celery import NICE, make_app; from celery.signals import celeryd_init; "
    code += "make_app().WorkController(pool_cls='threads', concurrency=1); before = os.nice(0); "
    code += "celeryd_init.send(sender='worker'); print(before, os.nice(0) - NICE)"
    settings = {**os.environ, "DJANGO_SETTINGS_MODULE": "control_plane.settings"}
    worker = subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True)
    assert worker.stdout.split() == [str(os.nice(0))] * 2, worker.stderr


def test_only_a_check_that_takes_long_gives_way() -> None:
    """15 ms of a processor became a quarter of a second where others worked. Those of one that has many give way."""
    code = "import os, time; from control_plane.adapters.uploads import validation_sandbox as made\n"
    code += "made.QUICK_S = 0.01; before = os.nice(0); made.give_way(0); print(os.nice(0) - before)\n"
    code += "while os.nice(0) == before: pass\n"
    code += "print(os.nice(0) - before); made.give_way(2); print(os.nice(0) - before)"
    child = subprocess.run(
        [sys.executable, "-c", code], start_new_session=True, capture_output=True, text=True, timeout=60
    )
    nice = validation_sandbox.NICE
    assert child.stdout.split() == ["0", str(nice), str(min(2 * nice + 2, 19 - os.nice(0)))], child.stderr


def ask(**what: Any) -> Any:
    """A child's answer to a request of files that are not there."""
    base = {"names": ["base"], "geometry": {}, "limits": {"max_rank": 8, "max_bytes": 1 << 20}}
    request = {"files": {}, "sha256": {}, "into": "/nonexistent", "bases": [base], "adapter_base": ""}
    request |= {"cpu_s": 5, "memory_bytes": 1 << 30, "nice": 0, **what}
    return validation_child.start_child().ask(json.dumps(request), 60)


def children(process: int) -> list[int]:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    return []


def waiting_check() -> tuple[validation_child.Child, int]:
    """One that has begun, and waits for its request; and its process."""
    validation_child.prepare()
    assert validation_child._forker is not None
    forker = validation_child._forker.process.pid
    before = set(children(forker))  # those of checks that are just ending
    child = validation_child.start_child()
    (keeper,) = eventually(lambda: set(children(forker)) - before)
    (checking,) = eventually(lambda: children(keeper))
    return child, checking


def test_to_start_a_check_costs_a_fork() -> None:
    """To start Python and load what checks need, 150 ms of a processor, was most of what a small upload takes."""
    child, checking = waiting_check()
    eventually(lambda: os.getsid(checking) == checking)
    user, system = Path(f"/proc/{checking}/stat").read_text().rpartition(")")[2].split()[11:13]
    assert int(user) + int(system) < 0.08 * os.sysconf("SC_CLK_TCK")
    child.kill()
    with pytest.raises(validation_child.CheckCancelledError):
        child.ask("{}", 60)


def test_how_a_check_ends_is_told() -> None:
    """And the next one knows nothing of it."""
    crashed = ask(files=None)
    assert (crashed.returncode, crashed.stdout) == (1, "") and "Traceback" in crashed.stderr
    assert ask().returncode == 0


def test_a_check_ends_when_nobody_waits_for_it() -> None:
    """Its worker was killed, or gave it up."""
    child, checking = waiting_check()
    child._connection.close()
    eventually(lambda: not Path(f"/proc/{checking}").exists())


def test_what_is_forked_ends_with_its_worker() -> None:
    """Killed too."""
    code = "from control_plane.adapters.uploads import validation_child as made; import os, signal; made.prepare(); "
    code += "print(made._forker.process.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    worker = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    eventually(lambda: not Path(f"/proc/{int(worker.stdout)}").exists())


def test_another_is_started_for_one_that_ended() -> None:
    validation_child.prepare()
    forker = validation_child._forker
    assert forker is not None
    forker.process.kill()
    forker.process.wait()
    assert ask().returncode == 0


@pytest.mark.usefixtures("queue")
def test_a_worker_that_stood_still_leaves_the_others_files(
    acme: Any, host: Any, committing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(acme, committing)
    first = uploads.claim_next()
    expire(Upload)
    second = uploads.claim_next()
    assert first is not None and second is not None
    ours = Path(second[0].folder) / f"unpacked-{second[0].attempts}"
    ours.mkdir()
    (Path(second[0].folder) / "unpacked-1").mkdir()
    monkeypatch.setattr(validation_job, "start_child", lambda: ScriptedChild(lambda _: {"problem": {}}))
    with pytest.raises(validation_job.RefusedError):
        validation_job.inspect(*first)
    assert ours.is_dir()
    assert not (Path(second[0].folder) / "unpacked-1").exists()


def test_uploads_that_wait_are_bounded(acme: Any, globex: Any, host: Any, queue: Any, monkeypatch: Any) -> None:
    """Each holds its files on the disk until it is checked."""
    monkeypatch.setattr(uploads, "MAX_WAITING", 3)
    received(acme, 3)
    form = {"name": "support", "files": [SimpleUploadedFile("a.zip", b"x")]}
    answer = acme.client().post(acme.path("uploads"), form, format="multipart")
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_unfinished_uploads")
    assert int(answer["Retry-After"]) > 0
    with pytest.raises(uploads.TooManyWaitingError):
        begin_resumable(acting=acme.principal(), name="big", description="", file_name="a.zip", size=10)
    assert Upload.objects.count() == 3
    form["files"] = [SimpleUploadedFile("a.zip", b"x")]
    assert globex.client().post(globex.path("uploads"), form, format="multipart").status_code == 202


# -- staging -----------------------------------------------------------------------------------------------------------


def placed(org: Any, host: EngineHost, number: int = 1) -> None:
    for index in range(number):
        name = f"{org.tenant.slug}-{host.name}-{index}"
        Placement.objects.create(version=add_version(org.tenant, name), host=host)


def stage() -> str | None:
    """The tenant whose version a slot brings to a host."""
    placement = placements.claim_next()
    return placement.version.tenant.slug if placement else None


def staged(slug: str) -> None:
    row = Placement.objects.filter(claims.claimed(), version__tenant__slug=slug).first()
    assert row is not None
    placements.record_stage_event(row, pb.StageEvent(phase=pb.StageEvent.READY), "boot-1", 0.0)


def test_staging_takes_turns(acme: Any, globex: Any, host: EngineHost, settings: Any) -> None:
    """As after the restart of a host, when everything of everybody is brought there again."""
    allow(settings, tenant_stagings=2)
    placed(acme, host, 5)
    assert [stage() for _ in range(3)] == ["acme", "acme", None]
    placed(globex, host, 2)
    assert [stage(), stage()] == ["globex", None], "as many as one host gets at once"
    staged("globex")
    assert stage() == "globex"
    staged("acme")
    assert stage() == "acme"


def test_a_host_that_hangs_does_not_hold_every_slot(acme: Any, globex: Any, host: EngineHost, settings: Any) -> None:
    allow(settings, tenant_stagings=100)
    placed(acme, host, 10)
    begun = [stage() for _ in range(5)]
    assert begun == ["acme"] * placements.HOST_STAGINGS + [None] * (5 - placements.HOST_STAGINGS)
    other = EngineHost.objects.create(name="other", address="unix:/x", state=HostState.ONLINE)
    placed(acme, other)
    assert stage() == "acme"


def test_a_killed_workers_staging_is_taken_over(acme: Any, host: EngineHost) -> None:
    placed(acme, host)
    assert [stage(), stage()] == ["acme", None]
    expire(Placement)
    assert stage() == "acme"


def test_progress_that_is_written_leaves_the_claim(acme: Any, host: EngineHost) -> None:
    placed(acme, host)
    placement = placements.claim_next()
    assert placement is not None
    placements.record_stage_event(placement, pb.StageEvent(phase=pb.StageEvent.DOWNLOADING), "boot-1", 1.0)
    assert Placement.objects.filter(claims.claimed(), claim=placement.claim).exists()


# -- webhooks ----------------------------------------------------------------------------------------------------------


def registered(org: Any, number: int = 1) -> list[Endpoint]:
    urls = [f"https://hooks{index}.{org.tenant.slug}.example/" for index in range(number)]
    return [Endpoint.objects.create(tenant=org.tenant, url=url) for url in urls]


def messages(endpoint: Endpoint, number: int = 1) -> None:
    for _ in range(number):
        event = Event.objects.create(tenant=endpoint.tenant, type=EventType.VERSION_READY, data={})
        Delivery.objects.create(tenant=endpoint.tenant, endpoint=endpoint, event=event, next_attempt_at=timezone.now())


def sending() -> str | None:
    """Which endpoint a slot sends to."""
    claimed = delivery.claim_next()
    return claimed.endpoint.url.removeprefix("https://").removesuffix(".example/") if claimed else None


@pytest.fixture
def endpoint_answers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `post` does, in turn: a status, or an exception."""
    answers: list[Any] = []

    def post(*_: Any, **__: Any) -> int:
        answer = answers.pop(0) if answers else 200
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    monkeypatch.setattr(egress, "post", post)
    return answers


def test_one_message_at_a_time_to_an_endpoint(acme: Any, globex: Any, settings: Any) -> None:
    allow(settings, tenant_deliveries=3)
    slow, other = registered(acme, 2)
    messages(slow, 1000)
    messages(other, 2)
    assert [sending() for _ in range(3)] == ["hooks0.acme", "hooks1.acme", None]
    (theirs,) = registered(globex)
    messages(theirs)
    assert sending() == "hooks0.globex"


def test_messages_of_one_tenant_at_once(acme: Any, globex: Any, settings: Any) -> None:
    allow(settings, tenant_deliveries=2)
    for endpoint in registered(acme, 20):
        messages(endpoint, 5)
    assert [sending() for _ in range(3)] == ["hooks0.acme", "hooks1.acme", None]
    (theirs,) = registered(globex)
    messages(theirs)
    assert sending() == "hooks0.globex"


def test_a_slot_with_nothing_to_do_writes_nothing(acme: Any, host: Any, django_assert_max_num_queries: Any) -> None:
    """A thousand of them beside another tenant's work would each hold the lock that its next job needs."""
    for endpoint in registered(acme, 5):
        messages(endpoint, 3)
    received(acme, 5)
    placed(acme, host, 5)
    ordered(acme, 3)
    takes = (delivery.claim_next, uploads.claim_next, placements.claim_next, exports._claim_next)
    for take in takes:
        while take():
            pass
    before = list(Queue.objects.order_by("pk").values_list("name", "chosen_at"))
    assert len(before) == 4
    for take in takes:
        with django_assert_max_num_queries(4):
            assert take() is None
    assert list(Queue.objects.order_by("pk").values_list("name", "chosen_at")) == before


def test_an_event_to_many_endpoints_asks_for_as_many_slots_as_a_tenant_may_have(
    acme: Any, queue: Any, committing: Any, settings: Any
) -> None:
    allow(settings, tenant_deliveries=2)
    registered(acme, 20)
    with committing():
        publish(acme.tenant, EventType.VERSION_READY, {})
    assert queue.names() == ["deliver_next"] * 2
    assert Delivery.objects.count() == 20


@pytest.mark.usefixtures("endpoint_answers")
def test_a_thousand_messages_are_by_turns(acme: Any, globex: Any) -> None:
    """With one slot, and also among one tenant's endpoints: a full one does not keep back the others."""
    full, other = registered(acme, 2)
    messages(full, 100)
    messages(other, 2)
    (theirs,) = registered(globex)
    messages(theirs, 3)
    order = []
    for _ in range(8):
        order.append(sending())
        claimed = Delivery.objects.select_related("endpoint", "event", "tenant").get(claim__isnull=False)
        delivery._note(claimed, delivery.Result(timezone.now(), 1, 200, ""))
    tenants = [name.rpartition(".")[2] for name in order if name]
    assert tenants[:6] in (["acme", "globex"] * 3, ["globex", "acme"] * 3)
    assert order.count("hooks1.acme") == 2


def test_a_failing_endpoint_rests_longer_each_time(acme: Any, endpoint_answers: list[Any]) -> None:
    (endpoint,) = registered(acme)
    messages(endpoint, 50)
    endpoint_answers += [egress.EgressError("no answer"), 500, 302, egress.EgressError("no answer")]
    rests = []
    for _ in range(4):
        assert delivery.deliver_next() is not None
        assert delivery.deliver_next() is None, "it rests"
        endpoint.refresh_from_db()
        assert endpoint.rests_until is not None
        rests.append((endpoint.rests_until - timezone.now()).total_seconds())
        Endpoint.objects.update(rests_until=timezone.now())
    assert rests == sorted(rests)
    assert rests[0] > 5 and rests[-1] > 500
    assert delivery.deliver_next() is not None
    endpoint.refresh_from_db()
    assert (endpoint.failures, endpoint.rests_until) == (0, None)


def test_a_slow_endpoint_rests_as_long_as_it_took(acme: Any, endpoint_answers: list[Any]) -> None:
    (endpoint,) = registered(acme)
    messages(endpoint, 2)
    claimed = delivery.claim_next()
    assert claimed is not None
    delivery._note(claimed, delivery.Result(timezone.now(), 4000, 200, ""))
    endpoint.refresh_from_db()
    assert endpoint.rests_until is not None
    assert 3 < (endpoint.rests_until - timezone.now()).total_seconds() <= 4
    assert endpoint.failures == 0


def test_a_try_is_shorter_than_its_claim() -> None:
    """Otherwise a message to a slow endpoint would go out twice."""
    assert egress.TOTAL_S < claims.CLAIM_S / 2


def test_a_killed_workers_message_is_sent_by_another(acme: Any, endpoint_answers: list[Any]) -> None:
    (endpoint,) = registered(acme)
    messages(endpoint)
    first = delivery.claim_next()
    assert delivery.deliver_next() is None
    expire(Delivery)
    endpoint_answers.append(503)
    assert delivery.deliver_next() is not None
    assert first is not None
    delivery._note(first, delivery.Result(timezone.now(), 1, 200, ""))
    row = Delivery.objects.get()
    assert (row.state, row.attempts, row.log.count()) == ("pending", 1, 2), "a late answer is logged, no more"


def test_an_endpoint_that_is_deleted_while_it_is_called(acme: Any, endpoint_answers: list[Any]) -> None:
    (endpoint,) = registered(acme)
    messages(endpoint)
    claimed = delivery.claim_next()
    assert claimed is not None
    Endpoint.objects.all().delete()
    delivery._note(claimed, delivery.Result(timezone.now(), 1, 200, ""))


def test_tests_and_replays_are_so_many_a_minute(acme: Any, globex: Any, queue: Any) -> None:
    """Each also ends an endpoint's rest, so sixty tests of a slow one were sixty calls."""
    mine, theirs = registered(acme)[0], registered(globex)[0]
    path = acme.path(f"webhooks/{mine.pk}")
    answers = [acme.client().post(f"{path}/test") for _ in range(webhooks.TESTS.count + 1)]
    assert [answer.status_code for answer in answers] == [202] * webhooks.TESTS.count + [429]
    assert 0 < int(answers[-1]["Retry-After"]) <= webhooks.TESTS.seconds
    assert answers[-1].json()["error"]["code"] == "too_many_requests"
    assert globex.client().post(globex.path(f"webhooks/{theirs.pk}/test")).status_code == 202, "each tenant its own"
    again = f"{path}/deliveries/{answers[0].json()['id']}/replay"
    codes = [acme.client().post(again).status_code for _ in range(webhooks.REPLAYS.count + 1)]
    assert codes == [202] * webhooks.REPLAYS.count + [429]


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_workers_lock_in_one_order(acme: Any, queue: Any) -> None:
    """The endpoint, then its message: in two orders, PostgreSQL would end one of them."""
    (endpoint,) = registered(acme)
    messages(endpoint)
    claimed = delivery.claim_next()
    expire(Delivery)
    assert claimed is not None
    late = delivery.Result(timezone.now(), 1, 200, "")
    while_another_commits(
        lambda: Endpoint.objects.select_for_update().get(pk=endpoint.pk),
        lambda: delivery._note(claimed, late),
        lambda: Delivery.objects.select_for_update().get(pk=claimed.pk),
    )
    assert Delivery.objects.get().state == "delivered"


# -- exports -----------------------------------------------------------------------------------------------------------


def ordered(org: Any, number: int = 1) -> None:
    for _ in range(number):
        exports.request_export(acting=org.principal(), span=last_days(2), grain=Grain.DAY)


def writing() -> str | None:
    """Whose export a slot writes."""
    export = exports._claim_next()
    return export.tenant.slug if export else None


def test_exports_take_turns(acme: Any, globex: Any, queue: Any) -> None:
    ordered(acme, 3)
    assert [writing(), writing()] == ["acme", None], "one at a time"
    ordered(globex)
    assert writing() == "globex"


def test_an_export_whose_writer_was_killed(acme: Any, queue: Any) -> None:
    ordered(acme)
    assert [writing(), writing()] == ["acme", None]
    expire(Export)
    assert exports.write_next()
    assert Export.objects.get().state == "ready"


def test_a_writer_that_stood_still_adds_nothing(acme: Any, queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parts between those of the other worker would be a file that cannot be unpacked."""
    ordered(acme)
    pieces = exports._compressed

    def stall(export: Export) -> Any:
        yield next(pieces(export))
        monkeypatch.setattr(exports, "_compressed", pieces)
        expire(Export)
        assert exports.write_next(), "the other worker"
        yield b"late"

    monkeypatch.setattr(exports, "_compressed", stall)
    assert exports.write_next()
    export = Export.objects.get()
    assert (export.state, export.attempts) == ("ready", 2)
    assert export.parts.count() == 1
    gzip.decompress(b"".join(bytes(part.data) for part in export.parts.all()))


# -- claims: killed, stalled, stopped ----------------------------------------------------------------------------------


def test_a_killed_worker_costs_seconds() -> None:
    """The claim's end and beat's next look together; it was twice the longest validation, eleven minutes."""
    looks = {entry["task"]: entry["schedule"] for entry in app.conf.beat_schedule.values()}
    for task in ("uploads.validate_next", "placements.stage_next", "webhooks.deliver_next", "reports.write_next"):
        assert claims.CLAIM_S + looks[task] <= 15
    assert claims.RENEW_S <= claims.CLAIM_S / 4, "a worker that is late once keeps its claim"


def test_another_worker_takes_what_a_dead_one_had(acme: Any, host: Any) -> None:
    received(acme)
    assert begin() == "acme"
    assert begin() is None
    expire(Upload)
    assert begin() == "acme"
    assert Upload.objects.get().attempts == 2


@pytest.mark.usefixtures("in_process", "queue")
def test_a_worker_that_stood_still_decides_nothing(
    acme: Any, host: Any, committing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wakes up while another checks the same upload: neither its verdict nor its files count."""
    send(acme, committing)
    inspect = validation_job.inspect
    stalled: list[Upload] = []

    def stall(upload: Upload, base: Any) -> Any:
        if not stalled:
            stalled.append(upload)
            expire(Upload)
            with committing():
                assert validation_job.validate_next(), "the other worker"
            assert Upload.objects.get().state == UploadState.ACCEPTED
        return inspect(upload, base)

    monkeypatch.setattr(validation_job, "inspect", stall)
    with committing():
        validation_job.validate_next()
    row = Upload.objects.get()
    assert (row.state, row.attempts) == (UploadState.ACCEPTED, 2)
    assert row.version is not None and row.version.number == 1
    assert not artifact_gc.reserve_content(stalled[0], "sha256:" + "0" * 64)
    uploads.refuse_upload(stalled[0], uploads.GIVEN_UP, None)
    row.refresh_from_db()
    assert row.state == UploadState.ACCEPTED


def test_a_late_verdict_does_not_end_the_other_workers_attempt(acme: Any, host: Any) -> None:
    received(acme)
    first = uploads.claim_next()
    expire(Upload)
    assert uploads.claim_next() is not None
    assert first is not None
    uploads.refuse_upload(first[0], uploads.GIVEN_UP, None)
    uploads.return_upload(first[0])
    assert Upload.objects.get().state == UploadState.VALIDATING


@pytest.mark.usefixtures("queue")
def test_a_worker_that_stops_in_order_gives_the_upload_back(
    acme: Any, host: Any, committing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, and it does not count as an attempt: restarts must not use up the upload's."""
    send(acme, committing)
    start_child = validation_job.start_child

    def cut_short() -> Any:
        raise validation_job.ValidationCancelledError

    for _ in range(uploads.MAX_ATTEMPTS + 1):
        monkeypatch.setattr(validation_job, "start_child", cut_short)
        with committing(), pytest.raises(validation_job.ValidationCancelledError):
            validation_job.validate_next()
        assert (Upload.objects.get().state, Upload.objects.get().attempts) == (UploadState.RECEIVED, 0)
    monkeypatch.setattr(validation_job, "start_child", start_child)
    with committing():
        assert validation_job.validate_next()
    assert Upload.objects.get().state == UploadState.ACCEPTED


def claimed_upload(org: Any) -> Upload:
    received(org)
    claimed = uploads.claim_next()
    assert claimed is not None
    return claimed[0]


@pytest.fixture
def quick_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "RENEW_S", 0.02)
    monkeypatch.setattr(claims, "_keeper", claims._Keeper())  # the other tests have none


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quick_claims")
def test_a_living_worker_keeps_its_claim(acme: Any, host: Any) -> None:
    upload = claimed_upload(acme)
    first = Upload.objects.get().claimed_until
    with claims.keep(upload):
        eventually(lambda: Upload.objects.get().claimed_until > first, what="the renewal")
        assert begin() is None
    assert first is not None and first - timezone.now() < timedelta(seconds=claims.CLAIM_S)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quick_claims")
def test_a_worker_is_told_that_its_claim_is_gone(acme: Any, host: Any) -> None:
    upload = claimed_upload(acme)
    lost = threading.Event()
    with claims.keep(upload, on_lost=lost.set):
        Upload.objects.update(claim=uuid.uuid4())
        assert lost.wait(20)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quick_claims", "queue")
def test_the_child_of_a_lost_claim_is_killed(acme: Any, host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two children on one upload would cost twice the memory, and one of them for nothing."""
    received(acme)

    def start_child() -> validation_child.Child:
        ours, _theirs.value = socket.socketpair()  # it never answers
        Upload.objects.update(claim=None, claimed_until=None)  # another worker took it
        return validation_child.Child(ours)

    _theirs = SimpleNamespace(value=None)
    monkeypatch.setattr(validation_job, "start_child", start_child)
    began = time.monotonic()
    with pytest.raises(validation_job.ValidationCancelledError):
        validation_job.validate_next()
    assert time.monotonic() - began < 30
    assert select.select([_theirs.value], [], [], 0)[0]  # its keeper sees that nobody waits
    _theirs.value.close()


def test_a_claim_that_cannot_be_renewed_is_lost_when_its_time_is_over(acme: Any, host: Any, monkeypatch: Any) -> None:
    """While the database is away nobody can be told anything: the worker counts for itself."""

    def away(*_: Any, **__: Any) -> None:
        raise OperationalError("away")

    kept = claims._Kept(Upload, claimed_upload(acme).pk, None, lambda: None)
    monkeypatch.setattr(type(Upload._default_manager.all()), "update", away)
    assert kept.renew()
    kept.renewed -= claims.CLAIM_S
    assert not kept.renew()


def test_everything_that_workers_claim_is_known() -> None:
    """`end_all`, for a start after which no worker of before lives, goes through these."""
    claimable = {model.__name__ for model in Claimable.__subclasses__()}
    assert claimable == {"Batch", "Upload", "Placement", "Delivery", "Export", "ArchiveRun"}
    claims.end_all()


def test_turns_are_of_one_queue(acme: Any, globex: Any, host: Any) -> None:
    received(acme)
    QueuePosition.objects.create(queue="staging", tenant=globex.tenant, began_at=timezone.now())
    assert begin() == "acme"
    assert set(QueuePosition.objects.values_list("queue", "tenant__slug")) == {
        ("staging", "globex"),
        ("validation", "acme"),
    }
