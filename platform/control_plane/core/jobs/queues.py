"""The Celery queues: one for each kind of background work, so that no kind waits for another.

Settings import this module, so it imports nothing of Django.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WorkQueue:
    """A queue. `slots` is the number of its tasks that the embedded worker runs at once."""

    name: str
    slots: int
    tasks: tuple[str, ...]


QUEUES = (
    # Short work on the database alone that beat must not wait for: the usage watermark depends on it.
    WorkQueue(
        "system",
        2,
        (
            "usage.aggregate",
            "quotas.reconcile",
            "adapters.judge_canaries",
            "evaluations.tend",
            "adapters.tend_uploads",
            "fleet.reconcile",
            "fleet.place_by_demand",
        ),
    ),
    # Both call the Hub.
    WorkQueue("validation", 3, ("adapters.validate_next", "adapters.poll_follows")),
    # Calls engine hosts, which may hang.
    WorkQueue(
        "staging",
        4,
        (
            "fleet.stage_next",
            "fleet.probe_missing",
            "fleet.drop_unwanted",
            "fleet.apply_pins",
            "fleet.apply_service",
            "fleet.apply_restart",
            "fleet.renew_certificate",
            "fleet.pull_usage",
        ),
    ),
    # Calls tenants' servers, which may be slow on purpose.
    WorkQueue("webhooks", 6, ("webhooks.deliver_next",)),
    WorkQueue("mail", 1, ("accounts.mail_reset_link", "tenants.mail_invitation")),
    WorkQueue("exports", 2, ("reports.write_next",)),
    # Takes up to minutes; nothing waits for it.
    WorkQueue(
        "maintenance",
        1,
        (
            "adapters.collect",
            "administration.clear_deleted",
            "usage.measure_storage",
            "usage.forget_abandoned",
            "usage.forget_series",
            "reports.tend_exports",
            "accounts.clear_sessions",
            "transcripts.forget",
            "batches.forget",
            "conversations.forget",
            "refusals.forget",
            "webhooks.forget",
        ),
    ),
)
DEFAULT = "system"
ROUTES = {task: {"queue": queue.name} for queue in QUEUES for task in queue.tasks}
