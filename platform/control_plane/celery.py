"""The Celery application. Tasks live in each app's `tasks.py` and only call that app's actions."""

import os

from celery.signals import celeryd_init

from control_plane.core.broker import App, Broker
from control_plane.core.jobs.task import PatientTask
from control_plane.core.processor import ask_for_short_slices

NICE = 5
"""Of a worker that is a process of its own: `celery worker`, and not a web process with workers in it."""

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")


def make_app() -> App:
    """Which queues are consumed is a state of the application, so each embedded worker has one of its own."""
    made = App("control_plane", amqp=Broker, task_cls=PatientTask, set_as_current=False)
    made.config_from_object("django.conf:settings", namespace="CELERY")
    made.autodiscover_tasks()
    return made


@celeryd_init.connect  # type: ignore[untyped-decorator]
def give_way(**_: object) -> None:
    """Where one machine does everything, requests go before background work.

    A worker gets less of the processor, but when it wakes up: a small upload is a hundred answers of the database, and
    after each it waited for others' slices of 3 ms.
    """
    os.nice(NICE)
    ask_for_short_slices()


app = make_app()
app.set_current()
app.set_default()
