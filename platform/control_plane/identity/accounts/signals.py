"""A signal that `second_factor` receives, so that accounts import no package above them."""

from django.dispatch import Signal

# `user`: proved now, for the first time, that the address is theirs. Somebody else may have used the account before.
# Sent within the transaction.
address_proven = Signal()
