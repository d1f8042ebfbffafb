"""The inference gateway: OpenAI-compatible HTTP and the inference websocket."""
