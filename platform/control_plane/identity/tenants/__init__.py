"""Tenants, their members, and the rule that every query names its tenant."""
