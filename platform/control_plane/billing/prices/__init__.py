"""Prices of tokens and storage: versions of price lists, and exact arithmetic with them."""
