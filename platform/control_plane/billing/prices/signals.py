"""What publishing asks `usage`, so that prices import no package above them."""

from django.dispatch import Signal

looking_for_use = Signal()
"""`base`, `day`: a receiver says whether anybody has used the base model since that day (UTC)."""
