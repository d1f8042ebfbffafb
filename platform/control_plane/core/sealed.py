"""Encryption of secrets in the database: unlike keys and passwords they must be readable again.

The key is derived from the installation's pepper, so a copy of the database reveals nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from cryptography.fernet import Fernet, InvalidToken

from control_plane.core.config import current


def seal(secret: str, purpose: bytes) -> str:
    """Encrypt a secret. Only the same `purpose` decrypts it again."""
    return _cipher(purpose).encrypt(secret.encode()).decode()


def unseal(sealed: str, purpose: bytes) -> str | None:
    """Decrypt a secret; None if it was encrypted under another pepper or for another purpose."""
    try:
        return _cipher(purpose).decrypt(sealed.encode()).decode()
    except InvalidToken:
        return None


def _cipher(purpose: bytes) -> Fernet:
    key = hmac.new(current().key_pepper.encode(), purpose, hashlib.sha256).digest()
    return Fernet(base64.urlsafe_b64encode(key))
