"""What placements do for adapters: this package imports nobody above it. Sent in the transaction of the change."""

from django.dispatch import Signal

version_in_use = Signal()
"""`version`: hosts are to hold it from now on."""

version_out_of_use = Signal()
"""`version`: no host needs it any more."""
