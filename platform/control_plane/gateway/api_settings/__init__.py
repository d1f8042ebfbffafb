"""Settings of a tenant for its inference requests: unknown fields, stored responses."""
