"""A host joins a fleet by exchanging a token, once, for a certificate of a key that is made here."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import ipaddress
import json
import logging
import socket
import urllib.error
import urllib.request
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from lora_engine.config import EngineConfig
from lora_engine.errors import StartupError
from lora_engine.wire.versions import WIRE_VERSION

from .identity import (
    BadCertificateError,
    HostIdentity,
    Identity,
    IdentityFiles,
    certificate_request,
    check_certificate,
    has_expired,
    read_key,
    require_cryptography,
    validity,
)

log = logging.getLogger(__name__)

# Seconds until the control plane must have answered.
_TIMEOUT_S = 30.0
# Bytes of an answer that are read at most.
_MAX_BYTES = 1 << 20
_WILDCARDS = ("0.0.0.0", "[::]", "::")
_NEW_TOKEN = "Have an operator make a join token for this host's name, and start the engine with --token."


def joined(config: EngineConfig) -> HostIdentity | None:
    """Return this host's identity: the stored one, or a new one by the token. None without ``--join``. Raises
    ``StartupError``.
    """
    if not config.join:
        return None
    require_cryptography()
    files = IdentityFiles(config.data_dir / "identity")
    known, token_hash = files.read(), hashlib.sha256(config.join_token.encode()).hexdigest()
    if known is not None and known.url == config.join and (not config.join_token or known.token_hash == token_hash):
        if has_expired(known):
            raise StartupError(f"The certificate of this host expired while it was away from {known.url}. {_NEW_TOKEN}")
        _require_clock(known)
        return HostIdentity(known, files)
    if not config.join_token:
        raise StartupError(f"This host has not joined {config.join} yet. {_NEW_TOKEN}")
    identity = _exchange(config, files, token_hash)
    files.write(identity)
    _require_clock(identity)
    log.info("joined %s as %s", config.join, identity.name)
    return HostIdentity(identity, files)


def _require_clock(identity: Identity) -> None:
    """Raise ``StartupError`` if this machine's clock is outside the certificate's validity: TLS errors would not say
    so.
    """
    now, (begins, ends) = datetime.now(UTC), validity(identity.certificate)
    if begins <= now < ends:
        return
    raise StartupError(
        f"{identity.name} has joined {identity.url}, whose certificate is good from {begins:%Y-%m-%d %H:%M} to "
        f"{ends:%Y-%m-%d %H:%M} UTC, but this machine's clock says {now:%Y-%m-%d %H:%M} UTC. Set the clock, and start "
        "the engine again by the same command; it needs no other token."
    )


def _exchange(config: EngineConfig, files: IdentityFiles, token_hash: str) -> Identity:
    key = files.joining_key()
    private = read_key(key)
    answer = _post(
        config.join,
        {
            "token": config.join_token,
            "name": config.host_name or socket.gethostname(),
            "address": advertised(config),
            "certificate_request": certificate_request(private).decode(),
            "wire_version": WIRE_VERSION,
        },
    )
    try:
        certificate, authority = str(answer["certificate"]), str(answer["authority"])
        check_certificate(certificate, authority, private)
        return Identity(str(answer["name"]), config.join, token_hash, key, certificate, authority)
    except (KeyError, BadCertificateError) as error:
        raise StartupError(
            f"{config.join} answered with an invalid certificate: {error}. Check that --join names the control plane."
        ) from None


def advertised(config: EngineConfig) -> str:
    """Return host:port at which the control plane reaches this host. Raises ``StartupError``."""
    if config.advertise:
        return config.advertise
    host, _, port = config.listen.rpartition(":")
    if config.listen.startswith("unix:") or not port.isdigit() or port == "0":
        raise StartupError("--join needs --listen host:port with a port that stays the same, e.g. 0.0.0.0:7000.")
    return f"{_outgoing_address(config.join)}:{port}" if host in _WILDCARDS else config.listen


def _outgoing_address(url: str) -> str:
    """Return this machine's address on the route to the control plane."""
    parts = urlsplit(url)
    try:
        family, _, _, _, address = socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # sends nothing
            local = str(probe.getsockname()[0])
    except OSError as error:
        raise StartupError(f"This machine's address towards {url} is not known ({error}); set --advertise.") from None
    return f"[{local}]" if ":" in local else local


def _post(url: str, body: dict[str, str | int]) -> dict[str, Any]:
    """Post JSON and return the answer. Raises ``StartupError`` with the control plane's message."""
    local = _require_https(url)
    request = urllib.request.Request(
        f"{url.rstrip('/')}/api/hosts/join", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(_NoRedirect, *([urllib.request.ProxyHandler({})] if local else []))
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            reply = json.loads(answer.read(_MAX_BYTES))
    except urllib.error.HTTPError as error:
        raise StartupError(f"{url} did not let this host join: {_error_text(error)}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise StartupError(f"{url} cannot be reached to join: {error}. Check --join and the network.") from None
    if not isinstance(reply, dict):
        raise StartupError(f"{url} did not answer like a control plane. Check --join.")
    return reply


def _require_https(url: str) -> bool:
    """Return whether the URL is this machine, the only one that may get a token over plain HTTP. Raises
    ``StartupError``.
    """
    parts = urlsplit(url)
    local = parts.hostname == "localhost"
    with contextlib.suppress(ValueError):
        local = local or ipaddress.ip_address(parts.hostname or "").is_loopback
    if parts.scheme != "https" and not (parts.scheme == "http" and local):
        raise StartupError(f"--join {url}: use https://, as the token is sent there.")
    return local


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirect, so that the token is sent to no other address."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _error_text(error: urllib.error.HTTPError) -> str:
    try:
        body = json.loads(error.read(_MAX_BYTES))["error"]
        return f"{body['message']} {body.get('fix', '')}".strip()
    except (OSError, ValueError, KeyError, TypeError):
        return f"HTTP status {error.code}. Check --join."
