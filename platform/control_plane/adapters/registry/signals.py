"""Signals that `placements` receives, so that adapters import no package above them; sent within the transaction."""

from django.dispatch import Signal

# `version`: hosts must have it from now on.
version_in_use = Signal()
# `version`: the live version of its adapter from now on.
live_version_changed = Signal()
# `version`: no host needs it any more.
version_out_of_use = Signal()
