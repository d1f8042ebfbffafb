"""The audit log: one row for each write."""
