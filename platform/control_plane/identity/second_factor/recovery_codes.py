"""Recovery codes: fifty random bits each, of which the database has digests, encrypted under the sealing key."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from uuid import UUID

from django.utils import timezone

from control_plane.core.sealed import seal, unseal
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
    RecoveryCode.objects.bulk_create(
        [RecoveryCode(user=user, digest=seal(_digest(user, code), purpose(user.pk))) for code in codes]
    )
    return [f"{code[:5]}-{code[5:]}" for code in codes]


def use(user: User, code: str) -> bool:
    """Use up one code. Returns False if the person has no such unused code."""
    digest = _digest(user, code)
    for row in RecoveryCode.objects.filter(user=user, used_at=None):
        if hmac.compare_digest(unseal(row.digest, purpose(user.pk)) or "", digest):
            return RecoveryCode.objects.filter(pk=row.pk, used_at=None).update(used_at=timezone.now()) == 1
    return False


def left(user: User) -> int:
    return RecoveryCode.objects.filter(user=user, used_at=None).count()


def purpose(user_id: UUID) -> bytes:
    return b"recovery code." + user_id.bytes


def _digest(user: User, code: str) -> str:
    return hashlib.sha256(user.pk.bytes + code.encode()).hexdigest()
