"""Webhooks: signed, retried, and never sent into our own network."""
