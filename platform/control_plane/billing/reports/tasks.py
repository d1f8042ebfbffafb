"""Tasks that write exports and run export schedules."""

from __future__ import annotations

from celery import shared_task

from control_plane.billing.reports import exports
from control_plane.core.writes import enqueue


@shared_task(name="reports.write_next")
def write_next() -> None:
    """Write one export, then enqueue the next one."""
    if exports.write_next():
        enqueue("reports.write_next")


@shared_task(name="reports.tend_exports")
def tend_exports() -> None:
    """Request the exports of due schedules; delete old exports."""
    exports.run_schedules()
    exports.forget()
