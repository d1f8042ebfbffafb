"""API keys. Their secrets are never stored."""

import uuid
from datetime import datetime

from django.db import models

from control_plane.core.columns import account_column
from control_plane.core.jobs import clocks
from control_plane.identity.tenants.models import Tenant, TenantQuerySet


class ApiKey(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=80)
    prefix = models.CharField(
        max_length=16, unique=True, help_text="Public part of the key, by which its row is looked up."
    )
    secret_hash = models.CharField(
        max_length=80, help_text="Id of a pepper, then the HMAC-SHA256 of the secret under that pepper."
    )
    # The secret before the last rotation, valid until the grace ends.
    previous_hash = models.CharField(max_length=80, blank=True, default="", db_default="")
    previous_until = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Time until which the secret before the last rotation is accepted; null: the key was never rotated.",
    )
    rotated_at = models.DateTimeField(
        null=True, blank=True, help_text="Time of the last rotation; null: the key was never rotated."
    )
    scopes = models.JSONField(default=list)
    created_by = account_column("created the key")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(
        null=True, blank=True, help_text="Time from which the key is refused; null: it does not expire."
    )
    last_used_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Time of the last request, written in batches up to a minute late; null: the key was never used.",
    )
    revoked_at = models.DateTimeField(
        null=True, blank=True, help_text="Time at which the key was revoked; null: it was not."
    )

    objects = TenantQuerySet["ApiKey"].as_manager()

    class Meta:
        ordering = ["-created_at"]
        indexes = [models.Index(fields=["tenant", "-created_at"], name="api_key_by_tenant")]

    def __str__(self) -> str:
        return f"lk_{self.prefix}_…"

    def accepted_hashes(self, moment: datetime | None = None) -> list[str]:
        """Return the hash of the secret, and of the previous one while its grace lasts."""
        in_grace = self.previous_until is not None and self.previous_until > (moment or clocks.now())
        return [self.secret_hash, self.previous_hash] if self.previous_hash and in_grace else [self.secret_hash]

    def usable_at(self, moment: datetime | None = None) -> bool:
        moment = moment or clocks.now()
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > moment)
