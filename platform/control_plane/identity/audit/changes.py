"""Changes of permissions and of deployed content, as the audit log shows them: every write has a row there."""

from __future__ import annotations

from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.tenants.models import Tenant

# Beginnings of actions that change neither anybody's permissions nor the content that serves requests.
_WITHOUT_EFFECT = ("upload.", "file.", "batch.", "export", "webhook.", "response.", "session.create")
# Rows that are compared: of two simultaneous writes, the one with the lower number may be committed later.
_LAST = 32


def has_effect(action: str) -> bool:
    return not action.startswith(_WITHOUT_EFFECT)


def last_changes(tenant: Tenant) -> tuple[int, ...]:
    """Return a value that differs after each write to the tenant's permissions or deployed content."""
    rows = AuditEvent.objects.for_tenant(tenant).order_by("-id").values_list("id", "action")[:_LAST]
    return tuple(number for number, action in rows if has_effect(action))
