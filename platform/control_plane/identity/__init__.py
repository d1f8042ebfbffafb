"""Who calls and what they may do: people, tenants, members, keys and the audit log."""
