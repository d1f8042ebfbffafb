"""Live events for the console's websocket."""
