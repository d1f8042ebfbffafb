"""What a tenant wants of latency, what it weighs beside others, and how often it got it."""
