from django.apps import AppConfig


class PlacementsConfig(AppConfig):
    name = "control_plane.fleet.placements"

    def ready(self) -> None:
        from control_plane.adapters.registry.signals import (
            live_version_changed,
            version_in_use,
            version_out_of_use,
        )
        from control_plane.fleet.hosts.signals import quarantined
        from control_plane.fleet.placements import actions, receivers

        version_in_use.connect(actions.place_version)
        version_out_of_use.connect(actions.withdraw_version)
        live_version_changed.connect(receivers.move_pin)
        quarantined.connect(receivers.clear_host)
