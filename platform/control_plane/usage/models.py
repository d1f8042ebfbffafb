"""The usage ledger: what each request really computed, by the engine's own count."""

from django.conf import settings
from django.db import models

from control_plane.adapters.models import Adapter, AdapterVersion
from control_plane.keys.models import ApiKey
from control_plane.tenants.models import Tenant
from control_plane.tenants.scope import AppendOnlyModel, AppendOnlyQuerySet


class Outcome(models.TextChoices):
    FINISHED = "finished"
    ABORTED = "aborted"
    FAILED = "failed"
    REFUSED = "refused"


class Endpoint(models.TextChoices):
    CHAT = "chat.completions"
    COMPLETIONS = "completions"


class UsageEvent(AppendOnlyModel):
    """One finished, aborted, failed or refused request. No prompt and no output is kept."""

    id = models.BigAutoField(primary_key=True)
    request_id = models.CharField(max_length=64, unique=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="usage_events")
    api_key = models.ForeignKey(ApiKey, null=True, on_delete=models.PROTECT, related_name="+")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    adapter = models.ForeignKey(Adapter, null=True, on_delete=models.PROTECT, related_name="+")
    version = models.ForeignKey(AdapterVersion, null=True, on_delete=models.PROTECT, related_name="+")
    model = models.CharField(max_length=200, help_text="The model name as the client wrote it.")
    endpoint = models.CharField(max_length=32, choices=Endpoint.choices)
    streamed = models.BooleanField(default=False)
    host = models.CharField(max_length=64, blank=True)
    prompt_tokens = models.PositiveIntegerField()
    cached_prompt_tokens = models.PositiveIntegerField(default=0)
    completion_tokens = models.PositiveIntegerField()
    outcome = models.CharField(max_length=16, choices=Outcome.choices)
    error_code = models.CharField(max_length=64, blank=True)
    queue_ms = models.PositiveIntegerField(default=0)
    adapter_load_ms = models.PositiveIntegerField(default=0)
    first_token_ms = models.PositiveIntegerField(default=0)
    prefill_ms = models.PositiveIntegerField(default=0)
    decode_ms = models.PositiveIntegerField(default=0)
    preemptions = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(help_text="When the request came in.")

    objects = AppendOnlyQuerySet["UsageEvent"].as_manager()

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["tenant", "-id"], name="usage_recent_by_tenant"),
            models.Index(fields=["tenant", "created_at"], name="usage_by_tenant_and_time"),
        ]
        constraints = [
            models.CheckConstraint(condition=models.Q(outcome__in=Outcome.values), name="usage_outcome_known"),
            models.CheckConstraint(
                condition=models.Q(cached_prompt_tokens__lte=models.F("prompt_tokens")), name="usage_cached_in_prompt"
            ),
        ]

    def __str__(self) -> str:
        return self.request_id
