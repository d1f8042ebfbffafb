"""Signals about hosts, so that this package imports none above it."""

from django.dispatch import Signal

host_changed = Signal()
"""`name`: its status was written."""

quarantined = Signal()
"""`host`: it is not to be used, in the transaction that finds so."""
