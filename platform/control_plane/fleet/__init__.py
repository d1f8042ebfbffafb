"""Engine hosts and which adapter version is on which of them."""
