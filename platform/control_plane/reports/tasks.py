"""Exports as workers write them, and standing orders as beat looks at them."""

from __future__ import annotations

from celery import shared_task

from control_plane.reports import exports


@shared_task(name="reports.write_export")
def write_export(export_id: str) -> None:
    """Write one export."""
    exports.write(export_id)


@shared_task(name="reports.tend_exports")
def tend_exports() -> None:
    """Order what standing orders ask for, take up what was lost, forget what is old."""
    exports.run_schedules()
    for export_id in exports.unwritten():
        write_export.delay(export_id)
    exports.forget()
