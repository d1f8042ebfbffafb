"""The overview page of a tenant: adapters, hosts and requests."""
