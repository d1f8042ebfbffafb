"""Adapters live on local disk, in pinned host memory, and in pages of the device pool."""
