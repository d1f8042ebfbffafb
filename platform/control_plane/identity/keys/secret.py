"""The form of an API key: `lk_<prefix>_<secret>`. The prefix selects the row, the secret authenticates."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import string
from dataclasses import dataclass

from control_plane.core.secrets import keys

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
    """Return the secret's HMAC-SHA256 under the pepper in use, as hex: a stolen database is useless without it.

    The id of the pepper stands before it. A slow password hash would add nothing, as the secret is 256 random bits, and
    would be paid for on every call.
    """
    return _hash(secret, keys.in_use("key-pepper"))


def hashes(secret: str) -> list[str]:
    """Return the secret's hash under each accepted pepper, the one in use first."""
    return [_hash(secret, pepper) for pepper in keys.accepted("key-pepper")]


def matching(secret: str, *stored_hashes: str) -> str | None:
    """Return the one of the stored hashes that is the secret's."""
    known = hashes(secret)
    equal = [stored for stored in stored_hashes for right in known if hmac.compare_digest(right, stored)]
    return equal[0] if equal else None


def _hash(secret: str, pepper: str) -> str:
    digest = hmac.new(pepper.encode(), secret.encode(), hashlib.sha256).hexdigest()
    return f"{keys.key_id('key-pepper', pepper)}${digest}"
