"""Placements: which version is to be on which host, and how it gets there."""
