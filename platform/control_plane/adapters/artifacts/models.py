"""Digests of the artifact store."""

from django.db import models


class Content(models.Model):
    """A digest that the artifact store has, or is about to get. Its row is the lock of `artifact_gc.py`."""

    digest = models.CharField(unique=True, max_length=71)
    touched_at = models.DateTimeField(
        help_text="Time at which an upload last brought the content, or a check of the store found it unknown."
    )

    def __str__(self) -> str:
        return self.digest
