"""Base models that operators admitted, and which hosts serve them."""
