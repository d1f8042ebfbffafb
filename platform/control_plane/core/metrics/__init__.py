"""Metrics for Prometheus: those of a process, those of the whole installation, and where they are shown."""
