"""Webhooks: signed, retried, and never sent into the installation's network."""
