"""Usage events, appended once per request, and the sums over them."""
