"""Every task goes to a queue of its kind, and each of the embedded workers takes its own queue only."""

from __future__ import annotations

import pytest

from control_plane.celery import app
from control_plane.jobs.queues import QUEUES, ROUTES


def test_every_task_has_its_queue() -> None:
    app.loader.import_default_modules()
    ours = {name for name in app.tasks if not name.startswith("celery.")}
    assert ours == set(ROUTES)


def test_what_beat_sends_is_a_task() -> None:
    assert {entry["task"] for entry in app.conf.beat_schedule.values()} <= set(ROUTES)


def test_what_beat_sends_often_expires() -> None:
    """Otherwise a worker that was away for a day finds thousands of the same."""
    for name, entry in app.conf.beat_schedule.items():
        assert entry["schedule"] >= 86_400 or entry["options"]["expires"] <= max(15, entry["schedule"]), name


def test_a_queue_that_nobody_consumes_is_refused() -> None:
    with pytest.raises(KeyError):
        app.amqp.queues["typo"]


def test_names_and_tasks_are_given_once() -> None:
    tasks = [task for queue in QUEUES for task in queue.tasks]
    assert len(tasks) == len(set(tasks))
    assert len({queue.name for queue in QUEUES}) == len(QUEUES)
