"""What a tenant and each of its keys may use, and the counters that hold them to it."""
