"""Encryption of secrets in the database: unlike keys and passwords they must be readable again.

The key comes from the sealing key, so a copy of the database reveals nothing. The id of the sealing key stands before
the text, so that a rotation can count and renew what is under an old one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from cryptography.fernet import Fernet, InvalidToken

from control_plane.core.secrets import keys

NAME = "sealing-key"


def seal(secret: str, purpose: bytes) -> str:
    """Encrypt a secret. Only the same `purpose` decrypts it again."""
    value = keys.in_use(NAME)
    return f"{keys.key_id(NAME, value)}:{_cipher(value, purpose).encrypt(secret.encode()).decode()}"


def unseal(sealed: str, purpose: bytes) -> str | None:
    """Decrypt a secret; None if it was encrypted under a key that is not accepted, or for another purpose."""
    identifier, _, text = sealed.partition(":")
    value = keys.by_id(NAME, identifier)
    try:
        return _cipher(value, purpose).decrypt(text.encode()).decode() if value is not None else None
    except InvalidToken:
        return None


def _cipher(value: str, purpose: bytes) -> Fernet:
    key = hmac.new(value.encode(), purpose, hashlib.sha256).digest()
    return Fernet(base64.urlsafe_b64encode(key))
