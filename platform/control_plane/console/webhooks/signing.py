"""Signatures of webhook messages, as in Standard Webhooks.

Version 2 is Standard Webhooks (https://www.standardwebhooks.com): the headers `webhook-id`, `webhook-timestamp` and
`webhook-signature`, a list of `v1,<base64>` of HMAC-SHA256 over `<id>.<timestamp>.<body>`. The key is the base64 text
after `whsec_`.

Version 1 stays beside it, for receivers that check it: `Lorikeet-Signature: t=<unix seconds>,v1=<hex>`, where the hex
is HMAC-SHA256 over `<t>.<body>` and the key is the secret as text. Before version 2 that text had the alphabet of URLs
and no padding, so there is a `v1` under both spellings.

For a day after a rotation messages are signed under the replaced secret too, also if there are more rotations in that
day: of two people who rotate a secret at the same time, neither ends the one that receivers still have. Secrets are
derived from the installation's webhook key and are not stored: a copy of the database signs nothing. While that key is
rotated, messages are signed under the secrets of both.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator
from datetime import datetime, timedelta

from control_plane.console.webhooks.models import Endpoint
from control_plane.core.secrets import keys

PREFIX = "whsec_"
_NAME = "webhook-key"
GRACE = timedelta(hours=24)
# Replaced secrets of one endpoint under which messages are signed: bounds the length of the headers.
MAX_REPLACED = 5


def secret_of(endpoint: Endpoint, version: int | None = None) -> str:
    """Return the secret as it is shown to its owner."""
    key = _key(keys.in_use(_NAME), endpoint, version or endpoint.secret_version)
    return PREFIX + base64.b64encode(key).decode()


def signature_headers(endpoint: Endpoint, message_id: str, body: bytes, now: datetime) -> dict[str, str]:
    """Return the headers of both versions, under every valid secret."""
    at = int(now.timestamp())
    roots = keys.accepted(_NAME)
    signing = [_key(root, endpoint, version) for version in _versions(endpoint, now) for root in roots]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at),
        "webhook-signature": " ".join(f"v1,{_sign(key, message_id, at, body)}" for key in signing),
        "Lorikeet-Signature": ",".join([f"t={at}", *(f"v1={_sign_1(text, at, body)}" for text in _texts(signing))]),
    }


def _key(root: str, endpoint: Endpoint, version: int) -> bytes:
    text = f"webhook:{endpoint.pk}:{version}"
    return hmac.new(root.encode(), text.encode(), hashlib.sha256).digest()


def replaced_secrets(endpoint: Endpoint, now: datetime) -> list[str]:
    """Return the times for `replaced_at` once the current secret is replaced `now`."""
    return [now.isoformat(), *(at for at in endpoint.replaced_at if _is_valid(at, now))][:MAX_REPLACED]


def _versions(endpoint: Endpoint, now: datetime) -> Iterator[int]:
    yield endpoint.secret_version
    for age, at in enumerate(endpoint.replaced_at, start=1):
        if _is_valid(at, now):
            yield endpoint.secret_version - age


def _is_valid(replaced_at: str, now: datetime) -> bool:
    return now < datetime.fromisoformat(replaced_at) + GRACE


def _sign(key: bytes, message_id: str, at: int, body: bytes) -> str:
    digest = hmac.new(key, f"{message_id}.{at}.".encode() + body, hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def _texts(signing: list[bytes]) -> Iterator[str]:
    """Yield the keys of version 1: the secrets as they are shown now, and as they were shown before version 2."""
    for key in signing:
        yield PREFIX + base64.b64encode(key).decode()
        yield PREFIX + base64.urlsafe_b64encode(key).decode().rstrip("=")


def _sign_1(text: str, at: int, body: bytes) -> str:
    return hmac.new(text.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
