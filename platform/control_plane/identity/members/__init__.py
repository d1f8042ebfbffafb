"""People of a tenant: memberships and invitations."""
