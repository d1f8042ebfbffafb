"""The project as a Django app: management commands, the current Celery app, extensions of the API schema."""

from django.apps import AppConfig


class ControlPlaneConfig(AppConfig):
    name = "control_plane"
    label = "control_plane"

    def ready(self) -> None:
        # `shared_task` binds to the current Celery app; without this import `.delay()` would reach a default broker.
        from control_plane import celery as _celery  # noqa: F401
        from control_plane.core import checks as _checks  # noqa: F401
        from control_plane.core.http import schema as _schema  # noqa: F401
        from control_plane.fleet.hosts import metrics as _metrics  # noqa: F401
