"""Time-based one-time passwords (RFC 6238): six digits, SHA-1, a period of 30 s, as every authenticator app has them.

The implementation is that of `cryptography`; this module adds the tolerated drift and the refusal of used codes.
"""

from __future__ import annotations

import base64
import hmac
import secrets

from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP

STEP_S = 30
DIGITS = 6
# Periods by which the clock of the person's device may differ from ours.
DRIFT = 1
# Bytes of a secret: the length of SHA-1, which RFC 4226 recommends.
SECRET_BYTES = 20
ISSUER = "Lorikeet"


def new_secret() -> str:
    """Return a secret in base32, as people type it into an app."""
    return base64.b32encode(secrets.token_bytes(SECRET_BYTES)).decode()


def setup_uri(secret: str, account: str) -> str:
    """Return the `otpauth://` URI that an app reads from a QR code."""
    return _totp(secret).get_provisioning_uri(account, ISSUER)


def code_at(secret: str, moment_s: float) -> str:
    """Return the code that an app shows at a Unix time."""
    return _totp(secret).generate(int(moment_s)).decode()


def matching_step(secret: str, code: str, moment_s: float, after: int) -> int | None:
    """Return the number of the period whose code this is, if it is near the present one and later than `after`."""
    totp, present, match = _totp(secret), int(moment_s) // STEP_S, None
    for step in range(present - DRIFT, present + DRIFT + 1):
        is_equal = hmac.compare_digest(totp.generate(step * STEP_S), code.encode())
        if is_equal and step > after:
            match = step
    return match


def _totp(secret: str) -> TOTP:
    return TOTP(base64.b32decode(secret), DIGITS, SHA1(), STEP_S)
