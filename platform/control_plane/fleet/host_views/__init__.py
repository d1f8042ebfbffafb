"""What tenants and operators see of engine hosts."""
