"""Signals about hosts, so that this package imports none above it."""

from django.dispatch import Signal

# Sent with `name` after a host's status was written.
host_changed = Signal()

# Sent with `host` in the transaction that puts it into quarantine.
quarantined = Signal()
