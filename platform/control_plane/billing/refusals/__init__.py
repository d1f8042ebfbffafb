"""Counts of requests that were refused before they reached an engine."""
