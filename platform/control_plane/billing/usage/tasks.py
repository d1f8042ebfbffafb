"""Celery tasks of usage: recovery, aggregation and the hourly measurement of storage."""

from __future__ import annotations

import logging

from celery import shared_task

from control_plane.billing.archives import archiving
from control_plane.billing.usage import actions, aggregation, storage, time_series
from control_plane.billing.usage.ledger_archive import LEDGER
from control_plane.billing.usage.recovery import recover_usage
from control_plane.core.unavailable import as_unavailable
from control_plane.fleet.hosts.models import EngineHost, HostState
from control_plane.fleet.transport.endpoint import endpoint_of
from control_plane.fleet.transport.errors import HostError

logger = logging.getLogger(__name__)


@shared_task(name="usage.aggregate")
def aggregate() -> None:
    """Add new ledger rows to the rollups."""
    aggregation.aggregate()


@shared_task(name="usage.measure_storage")
def measure_storage() -> None:
    """Count the present hour of every tenant's storage, unless it has been counted."""
    storage.measure()


@shared_task(name="usage.recover")
def recover() -> None:
    """Collect usage that no web process acknowledged, for instance because it was killed."""
    for host in EngineHost.objects.filter(active=True, state__in=[HostState.ONLINE, HostState.DRAINING]):
        try:
            recover_usage(endpoint_of(host.name))
        except HostError as failure:
            logger.warning("The usage of %s was not collected; the next run tries again: %s", host.name, failure)
        except Exception as error:  # the other hosts' usage is still collected
            if as_unavailable(error) is not None:
                raise
            logger.exception("The usage of %s was not collected; the next run tries again", host.name)


@shared_task(name="usage.forget_abandoned")
def forget_abandoned() -> None:
    """Delete abandoned attempts that are too old for any journal to report."""
    actions.forget_abandoned_attempts()


@shared_task(name="usage.forget_series")
def forget_series() -> None:
    """Delete minutes and hours that are no longer kept."""
    time_series.forget()


@shared_task(name="usage.archive_ledger")
def archive_ledger() -> None:
    """Archive the months of the ledger that are no longer kept, then delete their rows."""
    archiving.run(LEDGER)


@shared_task(name="usage.forget_hours")
def forget_hours() -> None:
    """Delete sums by the hour that are no longer kept."""
    aggregation.forget_hours()
