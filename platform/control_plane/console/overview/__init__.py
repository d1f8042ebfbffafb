"""The first page of a tenant: a glance over adapters, hosts and requests."""
