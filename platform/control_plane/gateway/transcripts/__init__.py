"""The text of requests, kept only where a tenant asked for it."""
