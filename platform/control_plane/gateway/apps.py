from django.apps import AppConfig


class GatewayConfig(AppConfig):
    name = "control_plane.gateway"

    def ready(self) -> None:
        from control_plane.identity.audit.actions import on_record
        from control_plane.identity.single_flight import forget_after_commit

        on_record(forget_after_commit)
