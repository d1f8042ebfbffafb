"""Signatures of this installation under Django's secret key, which stay valid while a rotation accepts the old one."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import TypeVar

from control_plane.core.secrets.keys import accepted, in_use

T = TypeVar("T", str, bytes)


def sign(purpose: bytes, message: bytes) -> bytes:
    """Return the HMAC-SHA256 of a message for one purpose."""
    return _sign(in_use("secret-key"), purpose, message)


def is_signed(purpose: bytes, message: bytes, signature: T, form: Callable[[bytes], T]) -> bool:
    """Return True if a signature, in the form that it was published in, is of one of the accepted keys."""
    known = [form(_sign(value, purpose, message)) for value in accepted("secret-key")]
    return any(hmac.compare_digest(_bytes(signature), _bytes(right)) for right in known)


def _sign(value: str, purpose: bytes, message: bytes) -> bytes:
    key = hmac.digest(value.encode(), b"lorikeet: " + purpose, hashlib.sha256)
    return hmac.digest(key, message, hashlib.sha256)


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
