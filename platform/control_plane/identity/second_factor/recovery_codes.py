"""Recovery codes: fifty random bits each, of which the database has a digest under the pepper."""

from __future__ import annotations

import hashlib
import hmac
import secrets

from django.utils import timezone

from control_plane.core.config import current
from control_plane.identity.accounts.models import User
from control_plane.identity.second_factor.models import RecoveryCode

COUNT = 10
LENGTH = 10
# Lower-case base32 without letters that look like digits.
_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"


def replace(user: User) -> list[str]:
    """Give a person new codes in place of all earlier ones, within a write that records it. Returns the codes."""
    codes = ["".join(secrets.choice(_LETTERS) for _ in range(LENGTH)) for _ in range(COUNT)]
    RecoveryCode.objects.filter(user=user).delete()
    RecoveryCode.objects.bulk_create([RecoveryCode(user=user, digest=_digest(user, code)) for code in codes])
    return [f"{code[:5]}-{code[5:]}" for code in codes]


def use(user: User, code: str) -> bool:
    """Use up one code. Returns False if the person has no such unused code."""
    row = RecoveryCode.objects.filter(user=user, digest=_digest(user, code), used_at=None)
    return row.update(used_at=timezone.now()) == 1


def left(user: User) -> int:
    return RecoveryCode.objects.filter(user=user, used_at=None).count()


def _digest(user: User, code: str) -> str:
    message = b"recovery code." + user.pk.bytes + code.encode()
    return hmac.new(current().key_pepper.encode(), message, hashlib.sha256).hexdigest()
