from django.apps import AppConfig


class EvaluationsConfig(AppConfig):
    name = "control_plane.evaluations"

    def ready(self) -> None:
        from control_plane.adapters.signals import version_in_use
        from control_plane.evaluations import receivers

        version_in_use.connect(receivers.evaluate)
