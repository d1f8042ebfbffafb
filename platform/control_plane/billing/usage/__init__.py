"""The usage ledger, with one event per request, and the sums over it."""
