"""What operators do with tenants: make, suspend, rename, delete and look into them."""
