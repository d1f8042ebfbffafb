"""Identity: people, tenants, members, keys, their permissions, and the audit log."""
