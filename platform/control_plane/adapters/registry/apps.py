from django.apps import AppConfig


class AdaptersConfig(AppConfig):
    name = "control_plane.adapters.registry"
    label = "adapters"
