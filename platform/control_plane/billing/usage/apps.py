from django.apps import AppConfig


class UsageConfig(AppConfig):
    name = "control_plane.billing.usage"

    def ready(self) -> None:
        from control_plane.billing.prices.signals import use_check
        from control_plane.billing.usage import base_models

        use_check.connect(base_models.is_used_since)
