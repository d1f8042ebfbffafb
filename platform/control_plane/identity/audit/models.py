"""The audit log."""

from django.db import models

from control_plane.identity.access.actor import ActorKind
from control_plane.identity.tenants.append_only import AppendOnlyModel, AppendOnlyQuerySet
from control_plane.identity.tenants.models import Tenant


class AuditEvent(AppendOnlyModel):
    """A write. Labels are copied, so that the row stays readable when its subject is deleted."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(
        Tenant,
        null=True,
        on_delete=models.PROTECT,
        related_name="audit_events",
        help_text="Tenant that the write concerns; null: none, such as for a sign-in.",
    )
    actor_kind = models.CharField(max_length=8, choices=ActorKind.choices)
    actor_id = models.CharField(max_length=64, blank=True)
    actor_label = models.CharField(max_length=254)
    action = models.CharField(max_length=64, help_text='Action as "noun.verb", e.g. "version.promote".')
    target_kind = models.CharField(max_length=32)
    target_id = models.CharField(max_length=64)
    target_label = models.CharField(max_length=254)
    detail = models.JSONField(default=dict)
    request_id = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = AppendOnlyQuerySet["AuditEvent"].as_manager()

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["tenant", "-id"], name="audit_recent_by_tenant")]
        constraints = [
            models.CheckConstraint(condition=models.Q(actor_kind__in=ActorKind.values), name="audit_actor_known")
        ]

    def __str__(self) -> str:
        return f"{self.actor_label} {self.action} {self.target_label}"
