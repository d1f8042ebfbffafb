"""Quotas: the counters that enforce limits and budgets on each request."""
