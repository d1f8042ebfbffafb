"""Organisations and their members."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Self, TypeVar

from django.conf import settings
from django.core.validators import RegexValidator
from django.db import models

from control_plane.core.columns import account_column
from control_plane.identity.tenants.roles import CAPABILITIES, Capability, Role

SLUG = RegexValidator(r"^[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?$", "Use 1-48 lower-case letters, digits and hyphens.")
M = TypeVar("M", bound=models.Model)


class TenantQuerySet(models.QuerySet[M, M]):
    """A queryset of rows that belong to a tenant. Its every use in request code starts with `for_tenant`."""

    def for_tenant(self, tenant: Tenant) -> Self:
        return self.filter(tenant=tenant)


class Tenant(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    slug = models.CharField(max_length=48, unique=True, validators=[SLUG])
    name = models.CharField(max_length=120)
    weight = models.FloatField(default=1.0, help_text="Weight of the tenant in the division of hosts that are full.")
    created_at = models.DateTimeField(auto_now_add=True)
    second_factor_required = models.BooleanField(
        default=False, db_default=False, help_text="Members without a second factor can only set one up."
    )
    suspended_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Time since which the tenant's keys are refused and its members can only read; null: not suspended.",
    )
    suspended_for = models.CharField(
        max_length=500,
        blank=True,
        default="",
        db_default="",
        help_text="Reason of the suspension, shown to the members; empty: the tenant is not suspended.",
    )
    deleted_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Time of the deletion, since which the tenant has no members; its usage and name stay; null: "
        "not deleted.",
    )

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(deleted_at=None) | models.Q(suspended_at__isnull=False),
                name="tenant_deleted_is_suspended",
            ),
            models.CheckConstraint(condition=models.Q(weight__gt=0), name="tenant_weight_positive"),
            models.CheckConstraint(condition=~models.Q(slug=""), name="tenant_slug_not_empty"),
        ]

    def __str__(self) -> str:
        return self.slug


class Membership(models.Model):
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role.choices)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TenantQuerySet["Membership"].as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "user"], name="membership_once"),
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="membership_role_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} is {self.role} of {self.tenant_id}"

    @property
    def capabilities(self) -> frozenset[Capability]:
        return CAPABILITIES[Role(self.role)]


class Invitation(models.Model):
    """An invitation, open until it is accepted, revoked or expired.

    Its token is signed, not stored (`invitations.py`).
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField(max_length=254, help_text="Address of the invited person, in lower case as in accounts.")
    role = models.CharField(max_length=16, choices=Role.choices)
    invited_by = account_column("invited the person")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(
        null=True, help_text="Time at which the invited person accepted; null: they did not."
    )
    revoked_at = models.DateTimeField(
        null=True, help_text="Time at which a member withdrew the invitation; null: nobody did."
    )

    objects = TenantQuerySet["Invitation"].as_manager()

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "email"],
                condition=models.Q(accepted_at=None, revoked_at=None),
                name="invitation_open_once",
            ),
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="invitation_role_known"),
        ]

    def __str__(self) -> str:
        return f"{self.email} as {self.role} of {self.tenant_id}"

    def is_open_at(self, moment: datetime) -> bool:
        """Return True if the invitation can be accepted. That of a deleted tenant, made during the deletion, cannot."""
        is_open = self.accepted_at is None and self.revoked_at is None and self.expires_at > moment
        return is_open and self.tenant.deleted_at is None
