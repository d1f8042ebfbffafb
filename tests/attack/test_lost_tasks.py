"""A task that is lost with Redis, and with the process that would have sent it again, is found in the database.

That a drop which was lost is found is tested beside the other reconciling: `tests/platform/test_placements_staging.py`.
"""

from __future__ import annotations

import pytest
from celery import Task
from django.db import connection

from control_plane.celery import app
from control_plane.core.deferred import Deferred
from control_plane.core.jobs.queues import ROUTES
from control_plane.core.jobs.task import PatientTask
from control_plane.core.unavailable import redis_unavailable

# What beat does not ask for again and again, and who finds that it is missing.
FOUND_BY = {
    "placements.drop_unwanted": "placements.reconcile drops what a host reports and nobody wants",
    "placements.probe_missing": "placements.reconcile asks again while there are versions that nobody has tried",
    "hosts.apply_service": "placements.reconcile asks again for every host that was not told",
    "placements.apply_pins": "placements.reconcile tells every host its whole list again and again",
    "joining.renew_certificate": "placements.reconcile asks again for every certificate that is due",
    "hosts.apply_restart": "placements.reconcile asks again for every host that does not say that it restarts",
    # Nobody waits for these without knowing: who invites sees the link and may invite again, which replaces it; who
    # forgot a password asks again. A mail that came hours later would only puzzle.
    "members.mail_invitation": "the inviter, who has the link too",
    "accounts.mail_reset_link": "the person, who asks again",
    "accounts.mail_address_changed": "the person, on whose page the address stands, and in the audit log",
    "second_factor.mail_notice": "the person, on whose page the change stands, and in the audit log",
}


def test_every_task_is_asked_for_again_or_missed_by_somebody() -> None:
    regular = {entry["task"] for entry in app.conf.beat_schedule.values()}
    assert set(ROUTES) - regular == set(FOUND_BY)


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_a_task_whose_connection_breaks_runs_again_on_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, since nothing else has noticed an outage yet."""
    ran = []

    def run(task: Task) -> None:
        with connection.cursor() as cursor:
            ran.append(cursor.execute("SELECT pg_backend_pid()").fetchone()[0])
            if len(ran) == 1:
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    monkeypatch.setattr(PatientTask, "run", run)
    PatientTask()()
    assert len(set(ran)) == 2

    monkeypatch.setattr(PatientTask, "run", lambda _task: ran.append(0) or connection.connection.execute("nonsense"))
    with pytest.raises(Exception, match="nonsense"):
        PatientTask()()
    assert ran.count(0) == 1, "a mistake is not repeated"


def test_what_waits_for_redis_is_sent_in_order_and_once() -> None:
    deferred, sent, away = Deferred(retry_s=3600), [], True

    def send(name: str) -> None:
        if away:
            raise redis_unavailable()
        sent.append(name)

    for name in ("a", "b", "a"):
        deferred.add(name, lambda name=name: send(name))
    deferred._try_all()
    assert (sent, len(deferred)) == ([], 2)
    away = False
    deferred._try_all()
    assert (sent, len(deferred)) == (["a", "b"], 0)


def test_a_task_that_comes_while_its_like_is_sent_is_sent_too() -> None:
    """The first may have been taken up before the second one's write was there."""
    deferred, sent = Deferred(retry_s=3600), []

    def first() -> None:
        sent.append("first")
        deferred.add("key", lambda: sent.append("second"))

    deferred.add("key", first)
    deferred._try_all()
    deferred._try_all()
    assert sent == ["first", "second"]
