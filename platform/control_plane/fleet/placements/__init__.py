"""Placements: which version is to be on which host, and its staging there."""
