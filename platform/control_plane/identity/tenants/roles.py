"""The permissions of each role. This table is their only definition."""

from django.db import models


class Role(models.TextChoices):
    OWNER = "owner"
    ADMIN = "admin"
    DEVELOPER = "developer"
    VIEWER = "viewer"


class Capability(models.TextChoices):
    """A permission that an endpoint may require. The scopes of API keys are a subset of these."""

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
    BE_MEMBER = "member"  # for actions of a person about themselves
    OPERATE = "operate"  # in no role: people who run the installation have it, in all tenants


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

# Permissions that members of a suspended tenant keep. Its API keys have none.
OF_SUSPENDED = frozenset({Capability.VIEW, Capability.BE_MEMBER, Capability.READ_AUDIT, Capability.READ_TRANSCRIPTS})

# A key can never create or revoke keys or members: a leaked one must not outlive its revocation.
KEY_SCOPES: frozenset[Capability] = frozenset({Capability.VIEW, Capability.INFER, Capability.WRITE_ADAPTERS})
