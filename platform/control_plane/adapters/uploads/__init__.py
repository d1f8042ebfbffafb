"""Uploads: how files arrive, are checked, and become a version."""
