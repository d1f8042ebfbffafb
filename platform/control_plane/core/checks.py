"""Warnings of `manage.py check --deploy` about Lorikeet's settings, beside Django's own."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Tags, Warning, register

from control_plane.core.config import current


@register(Tags.security, deploy=True)
def production(app_configs: Any, **options: Any) -> list[CheckMessage]:
    settings = current()
    warnings: list[CheckMessage] = []
    if settings.demo:
        warnings.append(Warning("The demo is on.", hint="Unset LORIKEET_DEMO.", id="lorikeet.W001"))
    if not settings.mail_url:
        hint = "Set LORIKEET_MAIL_URL; until then invitations and password links lie in the data folder."
        warnings.append(Warning("Mails are not sent.", hint=hint, id="lorikeet.W002"))
    if not settings.public_url and not settings.trusted_origins:
        hint = "Set LORIKEET_PUBLIC_URL, or links in mails lead to this machine only."
        warnings.append(Warning("The console's address is not known.", hint=hint, id="lorikeet.W003"))
    return warnings
