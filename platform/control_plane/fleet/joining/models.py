"""Tokens by which hosts join."""

import uuid

from django.db import models

from control_plane.fleet.hosts.models import EngineHost


class JoinToken(models.Model):
    """A token that lets one machine join as an engine host, once. Only its hash is kept."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    secret_hash = models.CharField(max_length=80, unique=True)
    host_name = models.CharField(
        max_length=64, blank=True, help_text="Name under which the host joins; empty: the machine chooses a new name."
    )
    created_by = models.CharField(max_length=300)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(
        null=True, blank=True, help_text="Time at which a host joined with the token; null: the token is unused."
    )
    used_by = models.ForeignKey(
        EngineHost,
        on_delete=models.SET_NULL,
        null=True,
        related_name="+",
        help_text="Host that joined with the token; null: the token is unused, or the host was removed.",
    )
    used_key = models.CharField(
        max_length=64,
        blank=True,
        help_text="Fingerprint of the key that joined with the token; empty: the token is unused.",
    )
    withdrawn_at = models.DateTimeField(
        null=True, blank=True, help_text="Time at which an operator withdrew the token; null: nobody did."
    )

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"join token for {self.host_name or 'any name'}"
