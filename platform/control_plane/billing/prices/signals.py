"""The signal by which publishing checks for usage, so that prices import no package above them."""

from django.dispatch import Signal

# Sent with `base` and `day`: a receiver returns whether the base model had a request since that day (UTC).
use_check = Signal()
