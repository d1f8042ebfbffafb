"""Encryption of tenants' tokens and addresses of imports in the database."""

from __future__ import annotations

from control_plane.core import sealed

_PURPOSE = b"imports: sealed secrets"


def seal(secret: str) -> str:
    return sealed.seal(secret, _PURPOSE)


def unseal(text: str) -> str | None:
    """Decrypt a secret; None if it was encrypted under another pepper."""
    return sealed.unseal(text, _PURPOSE)
