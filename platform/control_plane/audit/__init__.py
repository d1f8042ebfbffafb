"""Who changed what: one row for each write."""
