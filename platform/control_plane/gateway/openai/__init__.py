"""The OpenAI-compatible API at /v1: requests, responses, server-sent events."""
