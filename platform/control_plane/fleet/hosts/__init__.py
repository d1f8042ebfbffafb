"""Engine hosts, and the connections to them."""
