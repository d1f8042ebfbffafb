"""Limits of tenants and keys: what is allowed."""
