"""Which role may do what. This table is the only place that says so."""

from django.db import models


class Role(models.TextChoices):
    OWNER = "owner"
    ADMIN = "admin"
    DEVELOPER = "developer"
    VIEWER = "viewer"


class Capability(models.TextChoices):
    """What an endpoint may ask of its caller. API key scopes are a subset of these."""

    VIEW = "view"
    INFER = "infer"
    WRITE_ADAPTERS = "adapters.write"
    WRITE_KEYS = "keys.write"
    WRITE_MEMBERS = "members.write"
    WRITE_BUDGETS = "budgets.write"
    WRITE_TENANT = "tenant.write"
    WRITE_WEBHOOKS = "webhooks.write"
    WRITE_EXPORTS = "exports.write"
    READ_AUDIT = "audit.read"
    READ_TRANSCRIPTS = "transcripts.read"
    WRITE_TRANSCRIPTS = "transcripts.write"
    BE_MEMBER = "member"  # what only a person does, about themselves
    OPERATE = "operate"  # of no role: people who run the installation have it, in all tenants


_VIEWER = frozenset({Capability.VIEW, Capability.BE_MEMBER})
_DEVELOPER = _VIEWER | {
    Capability.INFER,
    Capability.WRITE_ADAPTERS,
    Capability.WRITE_KEYS,
    Capability.WRITE_EXPORTS,
}
_ADMIN = _DEVELOPER | {
    Capability.WRITE_MEMBERS,
    Capability.WRITE_BUDGETS,
    Capability.WRITE_WEBHOOKS,
    Capability.READ_AUDIT,
    Capability.READ_TRANSCRIPTS,
    Capability.WRITE_TRANSCRIPTS,
}
_OWNER = _ADMIN | {Capability.WRITE_TENANT}

CAPABILITIES: dict[Role, frozenset[Capability]] = {
    Role.VIEWER: _VIEWER,
    Role.DEVELOPER: _DEVELOPER,
    Role.ADMIN: _ADMIN,
    Role.OWNER: _OWNER,
}

# What is left to members of a suspended tenant; its keys may nothing.
OF_SUSPENDED = frozenset({Capability.VIEW, Capability.BE_MEMBER, Capability.READ_AUDIT, Capability.READ_TRANSCRIPTS})

# A key can never make or revoke keys or members: a leaked one must not be able to outlive its revocation.
KEY_SCOPES: frozenset[Capability] = frozenset({Capability.VIEW, Capability.INFER, Capability.WRITE_ADAPTERS})
