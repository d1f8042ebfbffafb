"""Telling a tenant's own servers what happened: signed, retried, and never inside our own network."""
