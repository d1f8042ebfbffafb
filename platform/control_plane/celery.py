"""The Celery application. Tasks live in each app's `tasks.py` and only call that app's actions."""

import os
from typing import Any

from celery.signals import beat_init, celeryd_init, heartbeat_sent, setup_logging

from control_plane.core.broker import App, Broker
from control_plane.core.config import current
from control_plane.core.http.logs import log_uncaught
from control_plane.core.jobs import task_metrics  # noqa: F401
from control_plane.core.jobs.task import PatientTask
from control_plane.core.metrics import heartbeat
from control_plane.core.metrics.endpoint import serve_metrics

NICE = 5  # of a `celery worker` process; web processes with embedded workers keep their priority

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")


def make_app() -> App:
    """Return a new Celery application. The consumed queues are its state, so each embedded worker has its own."""
    made = App("control_plane", amqp=Broker, task_cls=PatientTask, set_as_current=False)
    made.config_from_object("django.conf:settings", namespace="CELERY")
    made.autodiscover_tasks()
    return made


@celeryd_init.connect  # type: ignore[untyped-decorator]
def give_way(**_: object) -> None:
    """Give a worker process a lower priority, so that on a single machine requests come before background work."""
    os.nice(NICE)


@setup_logging.connect  # type: ignore[untyped-decorator]
def leave_logging(**_: object) -> None:
    """Leave logging to Django's settings: Celery would add a handler of its own, whose lines are no JSON."""


@celeryd_init.connect  # type: ignore[untyped-decorator]
def print_no_banner(instance: Any = None, **_: object) -> None:
    if instance is not None and current().log_json:
        instance.quiet = True


@celeryd_init.connect  # type: ignore[untyped-decorator]
@beat_init.connect  # type: ignore[untyped-decorator]
def show_metrics(**_: object) -> None:
    """Open the metrics port of a worker process or of beat. A web process with both shows its metrics itself."""
    if not current().is_embedded:
        log_uncaught()
        serve_metrics()


@heartbeat_sent.connect  # type: ignore[untyped-decorator]
def note_heartbeat(**_: object) -> None:
    """Note that a worker's event loop runs: it sends a heartbeat every two seconds while it reaches the broker."""
    heartbeat.beat()


@celeryd_init.connect  # type: ignore[untyped-decorator]
def check_secrets(**_: object) -> None:
    """End a worker with the secrets of another installation: it would fail imports and renewals."""
    from control_plane.core.secrets.checks import require_at_start  # needs loaded apps

    require_at_start()


app = make_app()
app.set_current()
app.set_default()
