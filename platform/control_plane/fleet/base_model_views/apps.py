from django.apps import AppConfig


class BaseModelViewsConfig(AppConfig):
    name = "control_plane.fleet.base_model_views"

    def ready(self) -> None:
        from control_plane.fleet.base_model_views import wakefulness as _wakefulness  # noqa: F401
