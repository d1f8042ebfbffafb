"""Who calls, in which tenant, and what they may do there; the views that ask for it."""
