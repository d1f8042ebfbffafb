"""Encryption of tenants' tokens and addresses of imports in the database."""

from __future__ import annotations

from control_plane.core import sealed

PURPOSE = b"imports: sealed secrets"


def seal(secret: str) -> str:
    return sealed.seal(secret, PURPOSE)


def unseal(text: str) -> str | None:
    """Decrypt a secret; None if it was encrypted under a key that is not accepted."""
    return sealed.unseal(text, PURPOSE)
