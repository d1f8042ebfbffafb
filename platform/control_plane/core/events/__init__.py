"""Live events on their way to sockets: numbered, kept for replay, sent through the channel layer."""
