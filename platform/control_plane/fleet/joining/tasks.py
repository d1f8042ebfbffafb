"""Celery tasks that renew a host's certificate, and delete old join tokens."""

import logging

from celery import shared_task

from control_plane.fleet.joining import join_tokens
from control_plane.fleet.joining.joining import renew
from control_plane.fleet.transport.endpoint import endpoint_of
from control_plane.fleet.transport.errors import HostError

logger = logging.getLogger(__name__)


@shared_task(name="joining.renew_certificate")
def renew_certificate(host_name: str) -> None:
    """Give a host that joined a certificate for a new key. The reconciler does it again if it is away."""
    try:
        renew(endpoint_of(host_name))
    except HostError as failure:
        logger.warning("the certificate of host %s could not be renewed: %s", host_name, failure)


@shared_task(name="joining.forget_tokens")
def forget_tokens() -> None:
    """Delete join tokens that expired long ago."""
    join_tokens.forget()
