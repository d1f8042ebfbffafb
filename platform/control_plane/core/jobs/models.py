"""Fair queue positions of tenants, claims of workers, and readings of the database's clock."""

from django.db import models

from control_plane.identity.tenants.models import Tenant


class Claimable(models.Model):
    """A row that one worker at a time works on: see `claims.py`."""

    claim = models.UUIDField(
        null=True,
        help_text="Random id of the current claim, by which writes of an earlier claim are refused; null: not claimed.",
    )
    claimed_until = models.DateTimeField(
        null=True,
        help_text="Time until which a claim, which its worker extends, or a rest without a claim lasts; null: neither.",
    )

    class Meta:
        abstract = True


class Queue(models.Model):
    """A queue. Its row is the lock under which a worker chooses its next job."""

    name = models.CharField(max_length=32, unique=True)
    chosen_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name


class QueuePosition(models.Model):
    """The time at which a tenant last had a job begun in a queue."""

    queue = models.CharField(max_length=32)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    began_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["queue", "tenant"], name="queue_position_once")]

    def __str__(self) -> str:
        return f"{self.tenant_id} in {self.queue}"


class ClockRecord(models.Model):
    """The single row that records readings of the database's clock: see `clocks.py`."""

    ONLY = 1

    read_at = models.DateTimeField(help_text="Time of the database's clock at the last reading by any process.")
    settling_since = models.DateTimeField(
        null=True, help_text="Time at which the database's clock last stepped; null once the wait after it is over."
    )
    step = models.TextField(
        default="",
        help_text="Description of the clock's last step; empty: the wait after it is over, or there was none.",
    )
    problem = models.TextField(
        default="", help_text="Reason why nothing is deleted because of its age; empty: deletion is not paused."
    )
    problem_at = models.DateTimeField(
        null=True, help_text="Time at which a process last reported the problem; null: there is none."
    )

    def __str__(self) -> str:
        return f"read at {self.read_at}"
