"""Keeps Django's secret key current while its file changes."""

from __future__ import annotations

from django.conf import settings
from django.core.signals import request_started

from control_plane.core.secrets.keys import accepted, file_of


def follow_secret_key(**_: object) -> None:
    """Give Django the present values of the secret key; a receiver of the signal before each request."""
    if file_of("secret-key") is None:
        return
    value, *others = accepted("secret-key")
    if (value, others) != (settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS):
        settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = value, others


request_started.connect(follow_secret_key)
