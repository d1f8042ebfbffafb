"""Hosts that join with a token, renew their certificates, and are revoked."""

from __future__ import annotations

import logging
import re
import uuid
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from control_plane.core.config import current
from control_plane.core.errors import LorikeetError
from control_plane.core.writes import enqueue
from control_plane.fleet.hosts.actions import locked_host
from control_plane.fleet.hosts.models import EngineHost, HostState
from control_plane.fleet.hosts.signals import quarantined
from control_plane.fleet.joining import authority
from control_plane.fleet.joining.join_tokens import usable_token
from control_plane.fleet.joining.models import JoinToken
from control_plane.fleet.transport.blocking_client import engine_calls
from control_plane.fleet.transport.endpoint import HostEndpoint, configured_endpoints
from control_plane.identity.access.actor import SYSTEM, Actor
from control_plane.identity.audit import actions as audit
from lora_engine.wire.versions import WIRE_VERSION, reject_version, upgrade_text

logger = logging.getLogger(__name__)

NAME_FORM = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
# A host name or address and a port: no path, no scheme of gRPC's, nothing of this machine's files.
ADDRESS_FORM = r"(?:[A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}"


@dataclass(frozen=True)
class Joined:
    """The response to a host that joined: its certificate, and the authority's to verify the control plane with."""

    name: str
    certificate: str
    authority: str
    expires_at: str


def join(*, token: str, name: str, address: str, request: str, wire_version: int = WIRE_VERSION) -> Joined:
    """Make the machine that presents the token a host. ``request`` is its certificate request (PKCS #10, PEM).

    Raises JoinTokenError (403), LorikeetError (400 for the request, 409 for the name or the engine's version).
    """
    key = _fingerprint(request)
    with transaction.atomic():
        row = usable_token(token, key)
        if reason := reject_version("this engine", wire_version):
            raise LorikeetError(
                "unsupported_engine", reason, upgrade_text(wire_version), param="wire_version", status=409
            )
        name = row.host_name or name
        again = row.used_by if row.used_key == key else None
        host = again or _free(name, row)
        if again is None:
            host.credential = uuid.uuid4().hex
        elif not host.credential:
            raise HostNameTakenError(f'The credential of "{host.name}" was revoked since it joined.')
        identity = authority.certify_host(request.encode(), host.credential, _lifetime())
        host.address, host.active, host.revoked_at = address, True, None
        host.joined_at, host.certificate_expires_at = timezone.now(), identity.expires_at
        host.authorities = " ".join(authority.authority_ids())
        host.save()
        row.used_at, row.used_by, row.used_key = timezone.now(), host, key
        row.save(update_fields=["used_at", "used_by", "used_key"])
        audit.record(
            SYSTEM, "host.join", host, tenant=None, address=address, token=str(row.pk), token_of=row.created_by
        )
    logger.info("host %s joined at %s", host.name, address)
    return Joined(
        host.name,
        identity.certificate.decode(),
        authority.authority_certificate().decode(),
        identity.expires_at.isoformat(),
    )


def revoke_host(*, actor: Actor, name: str) -> EngineHost:
    """Take a host's credential back: no process connects to it any more, and it is in quarantine until it joins anew.

    Raises NotFoundError (404), LorikeetError (409) for a host of the settings.
    """
    with transaction.atomic():
        host = locked_host(name)
        if host.revoked_at is not None:
            return host
        if not host.credential:
            raise HostNotJoinedError(name)
        host.credential, host.revoked_at, host.state = "", timezone.now(), HostState.OFFLINE
        host.certificate_expires_at = None
        host.save(update_fields=["credential", "revoked_at", "state", "certificate_expires_at"])
        quarantined.send(EngineHost, host=host)
        audit.record(actor, "host.revoke", host, tenant=None, address=host.address)
    logger.warning("the credential of host %s was revoked by %s", name, actor.label)
    return host


def forget_host(*, actor: Actor, name: str) -> None:
    """Remove a revoked host from the lists. Its name is free again. Raises NotFoundError (404), LorikeetError (409)."""
    with transaction.atomic():
        host = revoke_host(actor=actor, name=name)
        host.active, host.revoked_at = False, None
        host.save(update_fields=["active", "revoked_at"])
        audit.record(actor, "host.forget", host, tenant=None)


def renew(endpoint: HostEndpoint) -> None:
    """Have a host make a new key, certify it, and tell it which authorities to trust.

    Raises ``HostError`` if it does not answer.
    """
    authorities = " ".join(authority.authority_ids())
    with engine_calls(endpoint) as engine:
        identity = authority.certify_host(engine.request_certificate(), endpoint.credential, _lifetime())
        engine.install_certificate(identity.certificate, authority.authority_certificate())
    with transaction.atomic():
        host = EngineHost.objects.select_for_update().filter(name=endpoint.name, credential=endpoint.credential).first()
        if host is None:
            return  # it was revoked, or joined anew, meanwhile
        host.certificate_expires_at, host.authorities = identity.expires_at, authorities
        host.save(update_fields=["certificate_expires_at", "authorities"])
        audit.record(SYSTEM, "host.renew", host, tenant=None, expires_at=identity.expires_at.isoformat())


def renew_due() -> None:
    """Queue the renewal of certificates with less than a third of their lifetime left, or of other authorities."""
    soon = timezone.now() + _lifetime() / 3
    other = ~Q(authorities=" ".join(authority.authority_ids()))
    due = joined_hosts().filter(state__in=[HostState.ONLINE, HostState.DRAINING])
    for host in due.filter(Q(certificate_expires_at__lt=soon) | other):
        enqueue("joining.renew_certificate", host.name)


def joined_hosts() -> QuerySet[EngineHost]:
    """Return the hosts with a certificate of the fleet's authority."""
    return EngineHost.objects.filter(active=True).exclude(credential="")


def _lifetime() -> timedelta:
    return timedelta(seconds=current().host_certificate_s)


def _fingerprint(request: str) -> str:
    try:
        return authority.fingerprint(request.encode())
    except authority.BadRequestForCertificateError as error:
        raise LorikeetError(
            "bad_certificate_request",
            str(error),
            "Join with `python -m lora_engine --join`, which makes the request.",
            param="certificate_request",
        ) from error


def _free(name: str, token: JoinToken) -> EngineHost:
    """Return the row of a name that this token may take, locked, or a new one. Raises LorikeetError (409)."""
    if not re.fullmatch(NAME_FORM, name):
        raise LorikeetError(
            "bad_host_name", f'"{name[:80]}" is not a host name.', "Use letters, digits, dots and dashes.", param="name"
        )
    if name in configured_endpoints():
        raise HostNameTakenError(f'"{name}" is a host of LORIKEET_ENGINE_HOSTS.')
    host, _ = EngineHost.objects.select_for_update().get_or_create(name=name, defaults={"active": False})
    if host.active and token.host_name != name:
        raise HostNameTakenError(f'There is a host "{name}" already.')
    return host


class HostNameTakenError(LorikeetError):
    def __init__(self, message: str) -> None:
        fix = "Join under another name (--host-name), or have a join token made for this name, to take its place."
        super().__init__("host_name_taken", message, fix, param="name", status=409)


class HostNotJoinedError(LorikeetError):
    def __init__(self, name: str) -> None:
        super().__init__(
            "host_not_joined",
            f'"{name}" is a host of the settings; it has no credential of its own.',
            "Take it out of LORIKEET_ENGINE_HOSTS, or change LORIKEET_ENGINE_TOKEN.",
            param="host",
            status=409,
        )
