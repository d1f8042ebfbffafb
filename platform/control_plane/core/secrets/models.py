"""The ids of the secrets with which the data of this database was made."""

from django.db import models


class SecretRecord(models.Model):
    """The id of a secret's value, and the steps of its rotation. The value itself is not stored."""

    name = models.CharField(max_length=32, primary_key=True)
    key_id = models.CharField(max_length=8)
    next_id = models.CharField(
        max_length=8, blank=True, default="", help_text="Id of the new value during a rotation; empty otherwise."
    )
    begun_at = models.DateTimeField(
        null=True, blank=True, help_text="Time at which the rotation began; null: no rotation is under way."
    )
    switched_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Time at which the new value came into use; null: no rotation is under way, or the old "
        "value is in use.",
    )

    def __str__(self) -> str:
        return f"{self.name} {self.key_id}"
