"""Signatures, so that a receiver can tell our messages from anybody else's.

`Lorikeet-Signature: t=<unix seconds>,v1=<hex>` where the hex is HMAC-SHA256 over `<t>.<body>` under the endpoint's
secret. For a day after a rotation there are two `v1`, under the new and the old secret. Secrets are derived from the
installation's pepper and are not stored: a copy of the database signs nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import datetime, timedelta

from control_plane import config
from control_plane.webhooks.models import Endpoint

HEADER = "Lorikeet-Signature"
GRACE = timedelta(hours=24)


def secret_of(endpoint: Endpoint, version: int | None = None) -> str:
    text = f"webhook:{endpoint.pk}:{version or endpoint.secret_version}"
    digest = hmac.new(config.current().key_pepper.encode(), text.encode(), hashlib.sha256).digest()
    return "whsec_" + base64.urlsafe_b64encode(digest).decode().rstrip("=")


def signature(secret: str, body: bytes, at: int) -> str:
    return hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()


def header(endpoint: Endpoint, body: bytes, now: datetime) -> str:
    at = int(now.timestamp())
    versions = [endpoint.secret_version]
    if endpoint.rotated_at is not None and now < endpoint.rotated_at + GRACE:
        versions.append(endpoint.secret_version - 1)
    return ",".join([f"t={at}", *(f"v1={signature(secret_of(endpoint, number), body, at)}" for number in versions)])
