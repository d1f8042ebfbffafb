"""The form of an API key: `lk_<prefix>_<secret>`. The prefix selects the row, the secret authenticates."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import string
from dataclasses import dataclass

from control_plane.core.config import current

SCHEME = "lk"
PREFIX_BYTES = 5
# Letters and digits only: a double click selects the whole key, where a hyphen would end the selection.
ALPHABET = string.ascii_letters + string.digits
SECRET_LENGTH = 43  # 256 bits
_FORM = re.compile(rf"{SCHEME}_(?P<prefix>[a-z2-7]{{4,16}})_(?P<secret>[A-Za-z0-9_-]{{1,100}})", re.ASCII)


@dataclass(frozen=True)
class KeyText:
    prefix: str
    secret: str

    def __str__(self) -> str:
        return f"{SCHEME}_{self.prefix}_{self.secret}"


def make() -> KeyText:
    prefix = base64.b32encode(secrets.token_bytes(PREFIX_BYTES)).decode().lower()
    return KeyText(prefix, "".join(secrets.choice(ALPHABET) for _ in range(SECRET_LENGTH)))


def parse(text: str) -> KeyText | None:
    """Return the parts of a key, or None if `text` cannot be one."""
    match = _FORM.fullmatch(text)
    return KeyText(match["prefix"], match["secret"]) if match else None


def hash_secret(secret: str) -> str:
    """Return the secret's HMAC-SHA256 under the server's pepper, as hex: a stolen database is useless without it.

    A slow password hash would add nothing, as the secret is 256 random bits, and would be paid for on every call.
    """
    return hmac.new(current().key_pepper.encode(), secret.encode(), hashlib.sha256).hexdigest()


def matches(secret: str, *stored_hashes: str) -> bool:
    """Return True if any of the hashes is the secret's."""
    hashed = hash_secret(secret)
    return any(hmac.compare_digest(hashed, stored) for stored in stored_hashes)
