from django.apps import AppConfig


class SecondFactorConfig(AppConfig):
    name = "control_plane.identity.second_factor"

    def ready(self) -> None:
        from control_plane.identity.accounts.signals import address_proven
        from control_plane.identity.second_factor.actions import forget_unproven

        address_proven.connect(forget_unproven)
