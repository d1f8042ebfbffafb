"""Sources of imports: a tenant's credentials, the repositories that requests name, and followed branches."""

import uuid

from django.db import models

from control_plane.adapters.registry.models import NAME
from control_plane.adapters.uploads.models import Upload
from control_plane.core.columns import account_column
from control_plane.identity.tenants.models import Tenant, TenantQuerySet


class HubToken(models.Model):
    """A tenant's token for its private repositories. Only imports decrypt it."""

    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, related_name="+")
    sealed = models.TextField(help_text="Token, encrypted under the sealing key.")
    created_by = account_column("stored the token")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TenantQuerySet["HubToken"].as_manager()

    def __str__(self) -> str:
        return f"hub token of {self.tenant_id}"


class BucketCredentials(models.Model):
    """A tenant's credentials for a bucket. Only imports decrypt them."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="bucket_credentials")
    bucket = models.CharField(max_length=63)
    endpoint = models.CharField(
        max_length=300, blank=True, help_text="Address of a server other than Amazon's; empty: Amazon S3."
    )
    region = models.CharField(max_length=64)
    sealed = models.TextField(help_text="{access_key_id, secret_access_key}, encrypted under the sealing key.")
    created_by = account_column("stored the credentials")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TenantQuerySet["BucketCredentials"].as_manager()

    class Meta:
        ordering = ["bucket"]
        constraints = [models.UniqueConstraint(fields=["tenant", "bucket"], name="bucket_once_per_tenant")]

    def __str__(self) -> str:
        return f"credentials of {self.bucket}"


class HubModelPolicy(models.Model):
    """A tenant's permission for requests to name repositories of the Hub. Without a row they may not."""

    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, related_name="hub_model_policy")
    enabled = models.BooleanField(default=False)
    organizations = models.JSONField(
        default=list, help_text="Organisations that are allowed, in lower case; empty = all."
    )

    objects = TenantQuerySet["HubModelPolicy"].as_manager()

    def __str__(self) -> str:
        return f"hub models of {self.tenant_id}"


class HubModel(models.Model):
    """A repository at a revision that requests of a tenant name, from its first use on."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="hub_models")
    name = models.CharField(max_length=300, help_text="Name in requests, as hub:org/name/folder@revision.")
    upload = models.ForeignKey(Upload, on_delete=models.CASCADE, related_name="hub_models")
    requested_at = models.DateTimeField()

    objects = TenantQuerySet["HubModel"].as_manager()

    class Meta:
        ordering = ["-requested_at"]
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="hub_model_once_per_tenant")]
        indexes = [models.Index(fields=["tenant", "requested_at"], name="hub_models_by_time")]

    def __str__(self) -> str:
        return self.name


class HubFollow(models.Model):
    """A branch of a repository: whenever it moves, the adapter gets a new version."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="hub_follows")
    adapter_name = models.CharField(max_length=64, validators=[NAME])
    source = models.CharField(
        max_length=800, help_text="Branch that the adapter follows, as hub:org/name/folder@branch."
    )
    commit = models.CharField(max_length=40, blank=True, help_text="Commit that was imported last; empty: none yet.")
    checked_at = models.DateTimeField(
        null=True, help_text="Time of the last check of the branch; null: it was not checked yet."
    )
    next_check_at = models.DateTimeField()
    failures = models.PositiveIntegerField(default=0, help_text="Number of failed checks in a row.")
    problem = models.JSONField(
        null=True,
        help_text="{code, message, fix}: the reason why the last check failed; null: it succeeded, or none was made.",
    )
    created_by = account_column("had the adapter follow the branch", otherwise="an API key did")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TenantQuerySet["HubFollow"].as_manager()

    class Meta:
        ordering = ["adapter_name"]
        indexes = [models.Index(fields=["next_check_at"], name="hub_follows_by_time")]
        constraints = [models.UniqueConstraint(fields=["tenant", "adapter_name"], name="hub_follow_once_per_adapter")]

    def __str__(self) -> str:
        return f"{self.adapter_name} follows {self.source}"
