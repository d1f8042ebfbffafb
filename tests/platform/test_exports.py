"""Exports: written by a job, whole or not at all, ordered once for each time, downloadable by their tenant only."""

from __future__ import annotations

import asyncio
import gzip
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from lorikeet_testing.ledger import record_event

from control_plane.billing.reports import exports, tasks
from control_plane.billing.reports.models import Cadence, Export, ExportPart, ExportSchedule
from control_plane.billing.usage.aggregation import aggregate
from control_plane.billing.usage.counters import Counts
from control_plane.billing.usage.models import Watermark
from control_plane.billing.usage.sums import Span
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.tenants.roles import Role

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]
MAY = {"from": "2026-05-01", "to": "2026-05-31"}


@pytest.fixture
def used(acme: Any) -> None:
    for hour in range(30):
        record_event(
            request_id=f"r{hour}",
            tenant=acme.tenant,
            model="m",
            endpoint="completions",
            outcome="finished",
            created_at=datetime(2026, 5, 2, tzinfo=UTC) + timedelta(hours=hour),
            counts=Counts(prompt_tokens=7, completion_tokens=1),
        )
    aggregate()


def order(org: Any, committing: Any, **body: Any) -> dict[str, Any]:
    with committing():
        answer = org.client().post(org.path("exports"), {**MAY, **body}, format="json")
    assert answer.status_code == 202, answer.content
    return dict(answer.json())


def download(org: Any, export: dict[str, Any], role: Role = Role.VIEWER) -> Any:
    return org.client(role).get(org.path(f"exports/{export['id']}/file"))


async def parts_of(answer: Any) -> bytes:
    return b"".join([part async for part in answer.streaming_content])


@pytest.mark.django_db(transaction=True)
def test_ordered_written_downloaded(acme: Any, globex: Any, used: None, queue: Any, committing: Any) -> None:
    export = order(acme, committing, grain="hour")
    assert export["state"] == "queued"
    assert download(acme, export).json()["error"]["code"] == "export_not_ready"
    assert queue.calls == [("reports.write_next", ())]
    tasks.write_next()
    listed = acme.client().get(acme.path("exports")).json()
    assert [(row["state"], row["lines"]) for row in listed] == [("ready", 30)]
    answer = download(acme, export)
    content = asyncio.run(parts_of(answer))
    assert answer["Content-Length"] == str(len(content)) == str(listed[0]["bytes"])
    lines = gzip.decompress(content).decode().splitlines()
    assert len(lines) == 31
    assert lines[1].startswith("2026-05-02T00:00:00+00:00,acme,,,,,finished,1,7,0,1")
    assert download(globex, export).status_code == 404


def test_in_parts(acme: Any, used: None, queue: Any, committing: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(exports, "PART_BYTES", 1)
    export = order(acme, committing, grain="hour")
    tasks.write_next()
    parts = ExportPart.objects.filter(export_id=export["id"]).values_list("data", flat=True)
    assert len(parts) >= 2
    assert gzip.decompress(b"".join(bytes(part) for part in parts)).count(b"\r\n") == 31


def test_a_worker_dies_while_it_writes(acme: Any, used: None, queue: Any, committing: Any, monkeypatch: Any) -> None:
    order(acme, committing)

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    for _ in range(exports.MAX_ATTEMPTS):
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(exports, "_end", die)
            tasks.write_next()
        assert not exports.write_next(), "claimed: nothing happens"
        assert Export.objects.get().state == "running"
        Export.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
    tasks.write_next()
    assert Export.objects.get().state == "failed"


@pytest.mark.parametrize(
    ("cadence", "now", "span"),
    [
        (Cadence.MONTH, date(2026, 6, 1), Span(date(2026, 5, 1), date(2026, 5, 31))),
        (Cadence.MONTH, date(2026, 1, 31), Span(date(2025, 12, 1), date(2025, 12, 31))),
        (Cadence.WEEK, date(2026, 5, 4), Span(date(2026, 4, 27), date(2026, 5, 3))),
        (Cadence.WEEK, date(2026, 5, 10), Span(date(2026, 4, 27), date(2026, 5, 3))),
    ],
)
def test_the_last_whole(cadence: Cadence, now: date, span: Span) -> None:
    assert exports.last_whole(cadence, now) == span


def _read_to(day: date, after: timedelta) -> None:
    Watermark.objects.update_or_create(
        pk=1, defaults={"checked_at": datetime(day.year, day.month, day.day, tzinfo=UTC) + after}
    )


def test_standing_orders(acme: Any, queue: Any, committing: Any) -> None:
    path = acme.path("export-schedules")
    for _ in range(2):
        schedule = acme.client().post(path, {"cadence": "month"}, format="json").json()
    assert len(acme.client().get(path).json()) == 1
    made = ExportSchedule.objects.get().created_at.date()
    next_month = (made.replace(day=1) + timedelta(days=32)).replace(day=1)
    with committing():
        assert exports.run_schedules(made) == 0, "the month before was over before it was asked for"
        assert exports.run_schedules(next_month) == 0, "the rollups do not reach the end of the month"
        _read_to(next_month, timedelta(minutes=59))
        assert exports.run_schedules(next_month) == 0, "requests from before midnight may still run"
        _read_to(next_month, timedelta(hours=1))
        assert exports.run_schedules(next_month) == 1
        assert exports.run_schedules(next_month + timedelta(days=5)) == 0
    export = Export.objects.get()
    assert (export.first, export.last) == (made.replace(day=1), next_month - timedelta(days=1))
    assert acme.client(Role.VIEWER).delete(f"{path}/{schedule['id']}").status_code == 403
    stale = ExportSchedule.objects.get()
    assert acme.client().delete(f"{path}/{schedule['id']}").status_code == 204
    exports.delete_schedule(acting=acme.principal(), schedule=stale)
    assert Export.objects.get().schedule is None
    actions = AuditEvent.objects.filter(action__startswith="export").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["export_schedule.create", "export.request", "export_schedule.delete"]


def test_weeks_missed_by_an_outage(acme: Any, queue: Any, committing: Any) -> None:
    acme.client().post(acme.path("export-schedules"), {"cadence": "week", "grain": "day"}, format="json")
    schedule = ExportSchedule.objects.get()
    monday = date(2026, 5, 4)
    ExportSchedule.objects.update(created_at=datetime(2026, 1, 7, tzinfo=UTC))
    first = Span(monday - timedelta(days=7), monday - timedelta(days=1))
    Export.objects.create(tenant=schedule.tenant, schedule=schedule, first=first.first, last=first.last, grain="day")
    _read_to(monday + timedelta(days=14), timedelta(hours=1))
    with committing():
        assert exports.run_schedules(monday + timedelta(days=23)) == 2, "a third week is not in the rollups yet"
    weeks = Export.objects.order_by("first").values_list("first", flat=True)
    assert list(weeks) == [first.first, monday, monday + timedelta(days=7)]
    _read_to(monday + timedelta(days=371), timedelta(hours=1))
    with committing():
        assert exports.run_schedules(monday + timedelta(days=371)) == 13, "older files would be deleted at once"


def test_a_worker_dies_while_it_requests_missed_weeks(acme: Any, queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    acme.client().post(acme.path("export-schedules"), {"cadence": "week"}, format="json")
    ExportSchedule.objects.update(created_at=datetime(2027, 12, 15, tzinfo=UTC))
    monday = date(2028, 1, 10)
    _read_to(monday, timedelta(hours=1))
    once = {"reports.write_next": None}
    with monkeypatch.context() as patched, pytest.raises(KeyError):
        patched.setattr(exports, "enqueue", once.pop)
        exports.run_schedules(monday)
    assert Export.objects.count() == 1
    assert exports.run_schedules(monday) == 3
    weeks = Export.objects.order_by("first").values_list("first", flat=True)
    assert list(weeks) == [date(2027, 12, 13), date(2027, 12, 20), date(2027, 12, 27), date(2028, 1, 3)]


def test_not_too_many(acme: Any, queue: Any, committing: Any) -> None:
    for _ in range(exports.MAX_WAITING):
        order(acme, committing)
    answer = acme.client().post(acme.path("exports"), MAY, format="json")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "too_many_exports")


def test_an_export_that_another_worker_took_is_no_work(
    acme: Any, used: None, queue: Any, committing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line was open, and is empty when its turn comes."""
    order(acme, committing)
    monkeypatch.setattr(exports.fair_queue.FairQueue, "choose", lambda _line: None)
    assert exports.write_next() is False
    assert Export.objects.get().state == "queued"
