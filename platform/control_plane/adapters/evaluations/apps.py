from django.apps import AppConfig


class EvaluationsConfig(AppConfig):
    name = "control_plane.adapters.evaluations"

    def ready(self) -> None:
        from control_plane.adapters.evaluations import actions
        from control_plane.adapters.registry.signals import version_in_use

        version_in_use.connect(actions.evaluate_by_rule)
