"""Fair queue positions of tenants, and the columns of rows that a worker can claim."""

from django.db import models

from control_plane.tenants.models import Tenant


class Claimable(models.Model):
    """A row that one worker at a time works on: see `claims.py`."""

    claim = models.UUIDField(null=True, help_text="New with each claim: what an earlier one still writes is ignored.")
    claimed_until = models.DateTimeField(null=True, help_text="Moved on while the worker lives.")

    class Meta:
        abstract = True


class Queue(models.Model):
    """Its row is the lock under which a worker chooses its next job."""

    name = models.CharField(max_length=32, unique=True)
    chosen_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name


class Turn(models.Model):
    """When a tenant last had a job begun."""

    queue = models.CharField(max_length=32)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    began_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["queue", "tenant"], name="turn_once")]

    def __str__(self) -> str:
        return f"{self.tenant_id} in {self.queue}"
