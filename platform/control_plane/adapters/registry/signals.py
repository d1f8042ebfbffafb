"""Signals that `placements` receives, so that adapters import no package above them; sent within the transaction."""

from django.dispatch import Signal

version_in_use = Signal()
"""`version`: hosts are to hold it from now on."""

live_version_changed = Signal()
"""`version`: the bare name of its adapter means it from now on."""

version_out_of_use = Signal()
"""`version`: no host needs it any more."""
