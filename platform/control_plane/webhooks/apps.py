from django.apps import AppConfig


class WebhooksConfig(AppConfig):
    name = "control_plane.webhooks"

    def ready(self) -> None:
        from control_plane.audit.actions import on_record
        from control_plane.webhooks.events import publish_audit

        on_record(publish_audit)
