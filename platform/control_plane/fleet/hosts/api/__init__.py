"""Views of engine hosts, for tenants and for operators."""
