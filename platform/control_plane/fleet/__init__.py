"""Engine hosts: how they join, what they hold, and which host serves a request."""
