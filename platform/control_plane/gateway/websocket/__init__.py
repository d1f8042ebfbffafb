"""Generations over a websocket, which survive its break: `/ws/inference`, and in the console."""
