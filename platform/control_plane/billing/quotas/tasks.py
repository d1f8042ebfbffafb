"""Celery tasks of quotas."""

from celery import shared_task

from control_plane.billing.quotas import reconciliation


@shared_task(name="quotas.reconcile")
def reconcile() -> int:
    return reconciliation.reconcile()
