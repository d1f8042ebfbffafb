"""The demo tenants of a fresh installation, made the way a user would make them."""
