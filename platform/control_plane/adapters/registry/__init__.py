"""Adapters, their immutable versions, aliases and uploads, and the artifact store."""
