"""Every task goes to a queue of its kind, and each of the embedded workers takes its own queue only."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import control_plane
from control_plane.celery import app
from control_plane.core.jobs.queues import QUEUES, ROUTES
from control_plane.core.jobs.sending import UnknownTaskError, send


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


def test_every_task_that_is_asked_for_by_name_is_one() -> None:
    names = {
        call.args[0].value
        for path in Path(control_plane.__path__[0]).rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant)
        if isinstance(call.func, ast.Name) and call.func.id in ("enqueue", "send")
        if isinstance(call.args[0].value, str)
    }
    assert len(names) > 5
    assert names <= set(ROUTES)


def test_an_unknown_task_is_refused_where_it_is_asked_for() -> None:
    with pytest.raises(UnknownTaskError, match=r"adapters\.validat"):
        send("adapters.validat")
