"""Canaries: what their requests came to, and when that ends them."""
