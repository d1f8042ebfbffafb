"""Requests that were refused before they reached an engine, counted."""
