from django.apps import AppConfig


class WebhooksConfig(AppConfig):
    name = "control_plane.console.webhooks"

    def ready(self) -> None:
        from control_plane.console.webhooks.events import publish_audit
        from control_plane.identity.audit.actions import on_record

        on_record(publish_audit)
