from django.apps import AppConfig


class HostViewsConfig(AppConfig):
    name = "control_plane.fleet.host_views"

    def ready(self) -> None:
        from control_plane.fleet.host_views.events import publish_host_status
        from control_plane.fleet.hosts.signals import host_changed

        host_changed.connect(publish_host_status)
