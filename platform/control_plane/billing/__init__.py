"""Billing: usage, limits, prices, reports and objectives."""
