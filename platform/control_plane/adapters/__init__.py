"""Adapters from upload to retirement: versions, aliases, uploads, imports, canaries and evaluations."""
