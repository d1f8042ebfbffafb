"""Canaries: statistics of their requests, and when they are ended."""
