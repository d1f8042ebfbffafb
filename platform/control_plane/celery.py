"""The Celery application. Tasks live in each app's `tasks.py` and only call that app's actions."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")


def make_app() -> Celery:
    """Which queues are consumed is a state of the application, so each embedded worker has one of its own."""
    made = Celery("control_plane", set_as_current=False)
    made.config_from_object("django.conf:settings", namespace="CELERY")
    made.autodiscover_tasks()
    return made


app = make_app()
app.set_current()
app.set_default()
