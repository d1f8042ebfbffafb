"""The aggregator and the hourly look at storage, as beat runs them."""

from __future__ import annotations

from celery import shared_task

from control_plane.usage import aggregation, storage


@shared_task(name="usage.aggregate")
def aggregate() -> None:
    """Add what is new in the ledger to the rollups."""
    aggregation.aggregate()


@shared_task(name="usage.measure_storage")
def measure_storage() -> None:
    """Count the present hour of every tenant's storage, unless it has been counted."""
    storage.measure()
