from django.apps import AppConfig


class UsageConfig(AppConfig):
    name = "control_plane.billing.usage"

    def ready(self) -> None:
        from control_plane.billing.prices.signals import looking_for_use
        from control_plane.billing.usage import receivers

        looking_for_use.connect(receivers.is_used_since)
