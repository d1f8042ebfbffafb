"""The project as a Django app: management commands, the current Celery app, extensions of the API schema."""

from django.apps import AppConfig


class ControlPlaneConfig(AppConfig):
    name = "control_plane"
    label = "control_plane"

    def ready(self) -> None:
        # `shared_task` binds to the current Celery app; without this import `.delay()` would reach a default broker.
        from control_plane import celery as _celery  # noqa: F401
        from control_plane.console.monitoring import busiest as _busiest  # noqa: F401
        from control_plane.core import checks as _checks  # noqa: F401
        from control_plane.core.http import schema as _schema  # noqa: F401
        from control_plane.core.jobs import queue_lengths as _queue_lengths  # noqa: F401
        from control_plane.core.metrics import servers as _servers  # noqa: F401
        from control_plane.core.secrets import checks as _secret_checks  # noqa: F401
        from control_plane.core.secrets import following as _following  # noqa: F401
        from control_plane.fleet.base_models.api import wakefulness as _wakefulness  # noqa: F401
        from control_plane.fleet.hosts import metrics as _metrics  # noqa: F401
        from control_plane.fleet.hosts.api.events import publish_host_status
        from control_plane.fleet.hosts.signals import host_changed

        host_changed.connect(publish_host_status)
