"""Base models that operators approved, and which hosts serve them."""
