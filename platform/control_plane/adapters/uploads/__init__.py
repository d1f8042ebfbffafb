"""Uploads: receiving files, validating them, and making a version of them."""
