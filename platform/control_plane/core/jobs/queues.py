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
            "canaries.judge",
            "evaluations.tend",
            "uploads.tend",
            "placements.reconcile",
            "placements.place_by_demand",
        ),
    ),
    # Both call the Hub.
    WorkQueue("validation", 3, ("uploads.validate_next", "imports.poll_follows")),
    # Calls engine hosts, which may hang.
    WorkQueue(
        "staging",
        4,
        (
            "placements.stage_next",
            "placements.probe_missing",
            "placements.drop_unwanted",
            "placements.apply_pins",
            "hosts.apply_service",
            "hosts.apply_restart",
            "joining.renew_certificate",
            "usage.recover",
        ),
    ),
    # Calls tenants' servers, which may be slow on purpose.
    WorkQueue("webhooks", 6, ("webhooks.deliver_next",)),
    WorkQueue(
        "mail",
        1,
        (
            "accounts.mail_address_changed",
            "accounts.mail_reset_link",
            "members.mail_invitation",
            "second_factor.mail_notice",
        ),
    ),
    WorkQueue("exports", 2, ("reports.write_next",)),
    # Takes up to minutes; nothing waits for it.
    WorkQueue(
        "maintenance",
        1,
        (
            "artifacts.collect",
            "administration.clear_deleted",
            "usage.measure_storage",
            "usage.forget_abandoned",
            "usage.forget_series",
            "usage.forget_hours",
            "uploads.forget",
            "members.forget_invitations",
            "joining.forget_tokens",
            "usage.archive_ledger",
            "archives.archive_audit",
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
