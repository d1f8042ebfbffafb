"""The project as a Django app: holds the management commands and makes Celery's app current."""

from django.apps import AppConfig


class ControlPlaneConfig(AppConfig):
    name = "control_plane"
    label = "control_plane"

    def ready(self) -> None:
        # `shared_task` binds to the current Celery app; without this import `.delay()` would reach a default broker.
        from control_plane import celery as _celery  # noqa: F401
