"""Limits that operators grant to tenants, and tenants to their keys."""
