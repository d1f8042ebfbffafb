"""The control plane: tenants, adapters, quotas, usage and the gateway, as one Django project."""
