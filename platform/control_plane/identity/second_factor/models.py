"""The proofs of identity that people have besides their password."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models


class AuthenticatorApp(models.Model):
    """An app that shows time-based codes. A person has at most one in use, and one that is being set up."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="authenticator_apps")
    sealed = models.TextField(help_text="The shared secret, encrypted under a key for the person.")
    last_step = models.BigIntegerField(
        default=0, help_text="Period of the last accepted code; codes of earlier periods are refused."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    confirmed_at = models.DateTimeField(
        null=True, help_text="Time at which the app was confirmed by a code; null while it is being set up."
    )
    last_used_at = models.DateTimeField(
        null=True,
        help_text="Time at which a code of the app was last accepted at a sign-in or confirmation; null: never.",
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["user"], condition=models.Q(confirmed_at=None), name="authenticator_set_up_once"
            ),
            models.UniqueConstraint(
                fields=["user"], condition=models.Q(confirmed_at__isnull=False), name="authenticator_in_use_once"
            ),
        ]

    def __str__(self) -> str:
        return f"authenticator app of {self.user_id}"


class Passkey(models.Model):
    """A WebAuthn credential: a passkey of a device or a password manager, or a security key."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="passkeys")
    name = models.CharField(max_length=60)
    credential_id = models.CharField(max_length=1400, unique=True, help_text="Id of the credential, in base64url.")
    attested = models.TextField(help_text="AAGUID, id and public key as the authenticator sent them, in base64url.")
    rp_id = models.CharField(max_length=255, help_text="Domain for which the passkey was created.")
    sign_count = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, help_text="Time at which the passkey was last used; null: never.")

    class Meta:
        indexes = [models.Index(fields=["user", "created_at"], name="passkeys_of_a_person")]

    def __str__(self) -> str:
        return f"{self.name} of {self.user_id}"


class RecoveryCode(models.Model):
    """A code that replaces a lost second factor, once. Only its digest is stored, encrypted."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="recovery_codes")
    digest = models.TextField()
    used_at = models.DateTimeField(
        null=True, help_text="Time at which the code was used, after which it is refused; null: it was not used."
    )

    def __str__(self) -> str:
        return f"recovery code of {self.user_id}"
