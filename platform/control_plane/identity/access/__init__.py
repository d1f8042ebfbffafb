"""The caller of a request, its tenant and its capabilities; base classes of views that check them."""
