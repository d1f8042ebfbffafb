"""Administration of tenants by operators: create, rename, suspend, delete and inspect."""
