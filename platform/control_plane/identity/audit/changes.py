"""Which writes change what somebody may do or what answers them, by the audit log: every write has a row there."""

from __future__ import annotations

from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.tenants.models import Tenant

# Beginnings of actions after which everybody may do what they could before, and the same content answers.
_WITHOUT_EFFECT = ("upload.", "file.", "batch.", "export", "webhook.", "response.", "session.create")
# Of two writes at once the one with the lower number may be committed later: so many are looked at.
_LAST = 32


def has_effect(action: str) -> bool:
    return not action.startswith(_WITHOUT_EFFECT)


def last_changes(tenant: Tenant) -> tuple[int, ...]:
    """Another answer after each write that changed what the tenant's members and keys may do, or what answers them."""
    rows = AuditEvent.objects.for_tenant(tenant).order_by("-id").values_list("id", "action")[:_LAST]
    return tuple(number for number, action in rows if has_effect(action))
