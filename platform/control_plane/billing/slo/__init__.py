"""Latency objectives of tenants, their weights, and attainment."""
