"""`/ws/inference`: generations over a websocket, which survive its break."""
