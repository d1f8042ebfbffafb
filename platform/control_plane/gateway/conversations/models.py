"""Stored responses, each with the conversation up to it."""

from __future__ import annotations

from django.db import models

from control_plane.identity.tenants.models import Tenant, TenantQuerySet


class StoredResponse(models.Model):
    """A response with the conversation up to it.

    The text is in no other table. It is deleted when it expires, by a DELETE request, and with its tenant.
    """

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="stored_responses")
    name = models.CharField(max_length=64, unique=True, help_text="Id of the response, `resp_…`.")
    input_items = models.TextField(help_text="Items from which the response was generated, with their ids, as JSON.")
    body = models.TextField(help_text="Body of the response, as JSON.")
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    objects = TenantQuerySet["StoredResponse"].as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["tenant", "id"], name="stored_responses_by_tenant"),
            models.Index(fields=["expires_at"], name="stored_responses_by_expiry"),
        ]

    def __str__(self) -> str:
        return self.name
