"""Origins of web pages that may call inference with a tenant's keys (CORS)."""
